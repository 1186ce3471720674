//! tidy
pub(crate) fn command() -> anyhow::Result<()> { Ok(()) }
