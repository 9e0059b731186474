//! The tools that a server says it has, under names of ours, and those that cannot be taken.

use std::collections::HashSet;

use rmcp::model::{PaginatedRequestParams, Tool};
use rmcp::service::{Peer, RoleClient, ServiceError};
use serde_json::Value;
use twopass_core::chat::ToolSpec;

use crate::registry::MAX_NAME_CHARS;

/// Most tools that are taken of one server.
const MAX_TOOLS: usize = 256;

/// Most tools that are told of as left out.
const MAX_LEFT_OUT: usize = 64;

/// Most pages of its list that are asked for.
const MAX_PAGES: usize = 256;

/// Most bytes of names, descriptions and schemas that are read.
const MAX_LIST_BYTES: usize = 16 << 20;

/// Longest description that is taken, in characters.
const MAX_DESCRIPTION_CHARS: usize = 8000;

/// Largest schema that is taken, as JSON text in bytes.
const MAX_SCHEMA_BYTES: usize = 64 * 1024;

/// Most characters of a server's own text in a sentence for people.
const MAX_QUOTED_CHARS: usize = 80;

/// What a server offers.
#[derive(Default)]
pub(super) struct Offer {
    /// Each tool under the name that the server knows, and as we describe it.
    pub(super) tools: Vec<(String, ToolSpec)>,
    /// What is left out and why, one sentence each.
    pub(super) left_out: Vec<String>,
    remote_names: HashSet<String>,
    own_names: HashSet<String>,
}

impl Offer {
    /// Asks a server page by page. A list without end is read up to a limit.
    pub(super) async fn read(server: &str, peer: &Peer<RoleClient>) -> Result<Self, ServiceError> {
        let mut offer = Self::default();
        let mut cursor = None;
        let mut n_bytes = 0;
        for _ in 0..MAX_PAGES {
            let page = PaginatedRequestParams::default().with_cursor(cursor);
            let page = peer.list_tools(Some(page)).await?;
            for tool in page.tools {
                let (tool, n_tool_bytes) = Listed::new(tool);
                n_bytes += n_tool_bytes;
                if offer.remote_names.len() == MAX_TOOLS
                    || offer.left_out.len() == MAX_LEFT_OUT
                    || n_bytes > MAX_LIST_BYTES
                {
                    offer.stop(server);
                    return Ok(offer);
                }
                offer.add(server, tool);
            }
            cursor = page.next_cursor;
            if cursor.is_none() {
                return Ok(offer);
            }
        }
        offer.stop(server);
        Ok(offer)
    }

    fn stop(&mut self, server: &str) {
        let n_tools = self.tools.len();
        self.left_out.push(format!(
            "`{server}` lists more than {n_tools} tools; the others are left out (at most \
             {MAX_TOOLS} tools, {MAX_PAGES} pages, {MAX_LIST_BYTES} bytes)"
        ));
    }

    fn add(&mut self, server: &str, tool: Listed) {
        if !self.remote_names.insert(tool.name.clone()) {
            self.leave_out(
                server,
                &tool.name,
                "the server lists another one of this name",
            );
        } else if tool.n_schema_bytes > MAX_SCHEMA_BYTES {
            let reason = format!("its schema has over {MAX_SCHEMA_BYTES} bytes");
            self.leave_out(server, &tool.name, &reason);
        } else {
            let name = self.own_name(server, &tool.name);
            let spec = ToolSpec {
                name,
                description: tool.description,
                parameters: tool.parameters,
            };
            self.tools.push((tool.name, spec));
        }
    }

    /// Says that a tool cannot be used.
    pub(super) fn leave_out(&mut self, server: &str, tool: &str, reason: &str) {
        let tool: String = tool.chars().take(MAX_QUOTED_CHARS).collect();
        let tool = tool.escape_debug();
        self.left_out.push(format!(
            "the tool `{tool}` of `{server}` is left out: {reason}"
        ));
    }

    /// A name that no other tool of this server has: `mcp__SERVER__TOOL`, other characters
    /// than tool names may have as `_`. One that is too long or taken ends with a hash of
    /// the server's own name.
    fn own_name(&mut self, server: &str, tool: &str) -> String {
        let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        let clean = |c: char| if is_allowed(c) { c } else { '_' };
        let whole: String = format!("mcp__{server}__{tool}")
            .chars()
            .map(clean)
            .collect();
        let mut name = whole.clone();
        let mut hash = fnv1a(tool);
        while name.len() > MAX_NAME_CHARS || self.own_names.contains(&name) {
            let end = format!("_{hash:08x}");
            name = whole.chars().take(MAX_NAME_CHARS - end.len()).collect();
            name.push_str(&end);
            hash = hash.wrapping_add(1);
        }
        self.own_names.insert(name.clone());
        name
    }
}

/// A tool as a server lists it, its description cut.
struct Listed {
    name: String,
    description: String,
    parameters: Value,
    n_schema_bytes: usize,
}

impl Listed {
    /// The tool, and how many bytes it was described with.
    fn new(tool: Tool) -> (Self, usize) {
        let parameters = Value::Object(std::sync::Arc::unwrap_or_clone(tool.input_schema));
        let n_schema_bytes = parameters.to_string().len();
        let text = tool.description.unwrap_or_default();
        let n_bytes = tool.name.len() + text.len() + n_schema_bytes;
        let listed = Self {
            name: tool.name.into_owned(),
            description: text.chars().take(MAX_DESCRIPTION_CHARS).collect(),
            parameters,
            n_schema_bytes,
        };
        (listed, n_bytes)
    }
}

/// The 32-bit FNV-1a hash: the same name in every run and on every machine.
fn fnv1a(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash: u32, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    })
}
