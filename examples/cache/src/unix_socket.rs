//! Sockets in the file system.

use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::task::{Context, Poll};

use tokio::net::{UnixListener, UnixSocket, UnixStream};

use crate::server::BACKLOG;

/// Listens at a path. The drop removes the socket from the file system.
#[derive(Debug)]
pub struct UnixSocketListener {
    listener: UnixListener,
    path: PathBuf,
    /// Device and number of the file.
    file: (u64, u64),
}

/// Listens at a path, with these permissions for the socket. Removes a socket at which no server listens any
/// more.
///
/// # Errors
/// The path is in use or cannot be made. The message names the path.
pub async fn listen_unix(path: &Path, mode: u32) -> io::Result<UnixSocketListener> {
    let name = |error: io::Error| {
        io::Error::new(error.kind(), format!("cannot listen on {}: {error}", path.display()))
    };
    let is_socket = |metadata: std::fs::Metadata| metadata.file_type().is_socket();
    if std::fs::symlink_metadata(path).is_ok_and(is_socket)
        && UnixStream::connect(path)
            .await
            .is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
    {
        std::fs::remove_file(path).map_err(name)?;
    }
    let socket = UnixSocket::new_stream().map_err(name)?;
    socket.bind(path).map_err(name)?;
    let metadata = std::fs::symlink_metadata(path).map_err(name)?;
    let file = (metadata.dev(), metadata.ino());
    // Before it listens, no client can connect.
    let listened = std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
        .and_then(|()| socket.listen(BACKLOG));
    match listened {
        Ok(listener) => Ok(UnixSocketListener { listener, path: path.into(), file }),
        Err(error) => {
            let _ = std::fs::remove_file(path);
            Err(name(error))
        }
    }
}

impl UnixSocketListener {
    pub(crate) fn poll_accept(&self, context: &mut Context<'_>) -> Poll<io::Result<UnixStream>> {
        self.listener.poll_accept(context).map(|come| come.map(|(stream, _)| stream))
    }
}

impl From<UnixSocketListener> for crate::Listener {
    fn from(listener: UnixSocketListener) -> crate::Listener {
        crate::Listener::Unix(listener)
    }
}

impl Drop for UnixSocketListener {
    fn drop(&mut self) {
        // Another server may listen at this path by now.
        let is_mine = |metadata: std::fs::Metadata| (metadata.dev(), metadata.ino()) == self.file;
        if std::fs::symlink_metadata(&self.path).is_ok_and(is_mine) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}
