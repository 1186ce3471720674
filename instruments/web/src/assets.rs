//! Files of the page, which are part of the binary.

/// A file: its name, its media type and its contents.
pub(crate) struct Asset {
    name: &'static str,
    pub(crate) media_type: &'static str,
    pub(crate) text: &'static str,
}

const SCRIPT: &str = "text/javascript; charset=utf-8";

static ASSETS: [Asset; 12] = [
    Asset { name: "", media_type: "text/html; charset=utf-8", text: include_str!("assets/index.html") },
    Asset {
        name: "style.css",
        media_type: "text/css; charset=utf-8",
        text: include_str!("assets/style.css"),
    },
    Asset { name: "main.js", media_type: SCRIPT, text: include_str!("assets/main.js") },
    Asset { name: "list.js", media_type: SCRIPT, text: include_str!("assets/list.js") },
    Asset { name: "object.js", media_type: SCRIPT, text: include_str!("assets/object.js") },
    Asset { name: "curves.js", media_type: SCRIPT, text: include_str!("assets/curves.js") },
    Asset { name: "fleet.js", media_type: SCRIPT, text: include_str!("assets/fleet.js") },
    Asset { name: "log.js", media_type: SCRIPT, text: include_str!("assets/log.js") },
    Asset { name: "records.js", media_type: SCRIPT, text: include_str!("assets/records.js") },
    Asset { name: "part.js", media_type: SCRIPT, text: include_str!("assets/part.js") },
    Asset { name: "topology.js", media_type: SCRIPT, text: include_str!("assets/topology.js") },
    Asset { name: "text.js", media_type: SCRIPT, text: include_str!("assets/text.js") },
];

/// Returns the file of this name. The empty name is the page itself.
pub(crate) fn named(name: &str) -> Option<&'static Asset> {
    ASSETS.iter().find(|asset| asset.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_file_names_an_outside_resource() {
        for asset in &ASSETS {
            // The name of the namespace of drawings is no resource.
            let text = asset.text.replace("http://www.w3.org/2000/svg", "");
            for outside in ["http://", "https://", "url(", "@import", "innerHTML", "eval("] {
                assert!(!text.contains(outside), "{}: {outside}", asset.name);
            }
        }
    }
}
