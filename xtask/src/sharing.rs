//! sharing
#[derive(clap::Args)]
pub(crate) struct Options {}
pub(crate) fn command(_: &Options) -> anyhow::Result<()> { Ok(()) }
