//! Serialization of unit tests.

/// Serializes unit tests that use objects, because some of them check the state of the whole process.
pub(crate) fn lock() -> std::sync::MutexGuard<'static, ()> {
    static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    ALONE.lock().unwrap_or_else(|poison| poison.into_inner())
}
