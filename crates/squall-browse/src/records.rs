//! Records of the general monitor, summed for one connection.
//!
//! - I1. The program records for a connection from its first request until the promised time of the next one
//!   has passed, or the connection has ended.

use crate::protocol::{RECORDS_MS_MAX, RecordsView, Refusal, RefusalKind};

#[cfg(feature = "monitors")]
pub(crate) use with_monitors::Records;
#[cfg(not(feature = "monitors"))]
pub(crate) use without_monitors::Records;

fn checked(within_ms: u64) -> Result<(), Refusal> {
    if (1..=RECORDS_MS_MAX).contains(&within_ms) {
        return Ok(());
    }
    let message = format!(
        "records cannot be kept for {within_ms} ms; ask for the next ones within 1 to {RECORDS_MS_MAX} ms"
    );
    Err(Refusal::new(RefusalKind::Refused, message))
}

#[cfg(feature = "monitors")]
mod with_monitors {
    use super::{RecordsView, Refusal, RefusalKind, checked};
    use crate::protocol::{SUMS_MAX, SumValueView, SumView};
    use squall_core::name_of;
    use squall_policy::monitor::{Aggregate, Digest, Object, subscribe_digest};
    use std::time::Duration;

    /// The digest of a connection.
    #[derive(Debug, Default)]
    pub(crate) struct Records(Option<Digest>);

    impl Records {
        pub(crate) fn take(&mut self, within_ms: u64) -> Result<RecordsView, Refusal> {
            checked(within_ms)?;
            let idle_max = Duration::from_millis(within_ms);
            if let Some(digest) = &self.0
                && let Some(sums) = digest.take()
            {
                digest.set_idle_max(idle_max);
                return Ok(RecordsView {
                    begins: false,
                    span_us: sums.span.as_micros() as u64,
                    sums: sums.aggregates.iter().map(view).collect(),
                    dropped: sums.dropped,
                    missed: sums.missed,
                });
            }
            let digest = subscribe_digest(SUMS_MAX, idle_max)
                .map_err(|error| Refusal::new(RefusalKind::Refused, error.to_string()))?;
            self.0 = Some(digest);
            Ok(RecordsView { begins: true, ..RecordsView::default() })
        }
    }

    fn view(one: &Aggregate) -> SumView {
        let named = one.kind.value_names().into_iter().enumerate().filter(|(_, name)| !name.is_empty());
        let value = |(index, name): (usize, &str)| {
            let code = one.code(index).map(|code| code.into_owned());
            let quantity = |value| code.is_none().then_some(value);
            let (sum, max) = (quantity(one.sums[index]), quantity(one.maxima[index]));
            SumValueView { name: name.to_owned(), code, sum, max }
        };
        SumView {
            kind: one.kind.name().to_owned(),
            object: (one.object != Object::NONE).then(|| one.object.to_string()),
            name: one.object.id().and_then(name_of).as_deref().map(str::to_owned),
            count: one.count,
            values: named.map(value).collect(),
        }
    }
}

#[cfg(not(feature = "monitors"))]
mod without_monitors {
    use super::{RecordsView, Refusal, RefusalKind, checked};

    /// Stands for the digest of a connection.
    #[derive(Debug, Default)]
    pub(crate) struct Records;

    impl Records {
        #[expect(clippy::unused_self, reason = "the other build needs it")]
        pub(crate) fn take(&mut self, within_ms: u64) -> Result<RecordsView, Refusal> {
            checked(within_ms)?;
            let message =
                "the program was built without records; build it with the feature `monitors` of squall";
            Err(Refusal::new(RefusalKind::Refused, message))
        }
    }
}
