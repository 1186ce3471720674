//! Subjects `squall-*` of the case `request-counter`: the gates of `squall-objects`, used as a service would.

use squall::objects::gate::{self, Gate as _};
use squall::{Handle, Owned};

use crate::case::Missing;
use crate::ours_machine::on_processor;
use crate::rivals::gates::Gate;

/// `squall-shared` and `squall-distributed`.
pub(crate) struct Counted<const DISTRIBUTED: bool> {
    owned: Owned<dyn gate::Gate>,
    co: Handle<dyn gate::Gate>,
}

impl<const DISTRIBUTED: bool> Gate for Counted<DISTRIBUTED> {
    fn make() -> Result<Self, Missing> {
        let make = if DISTRIBUTED { gate::distributed } else { gate::shared };
        let owned = on_processor(0, make)?;
        let co = owned.handle();
        Ok(Counted { owned, co })
    }

    #[inline(always)]
    fn pass(&self) {
        if self.co.enter_now().is_ok() {
            self.co.leave();
        }
    }

    fn is_empty(&self) -> bool {
        // The gate is empty, so the stop ends at once.
        self.owned.inside() == 0 && self.owned.stop().is_ok() && self.owned.restart().is_ok()
    }
}
