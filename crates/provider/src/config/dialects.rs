//! The list `dialects`: formats of tool calls that the file defines itself.

use twopass_core::tool_parser::{CustomBody, CustomDialect, ToolDialect};

use super::node::{Node, NodeKind};
use super::section::{Section, Source};
use crate::ProviderError;

/// Reads the list; the rows go to the source, for the entries that name them.
pub(super) fn dialects(
    source: &mut Source,
    list: Option<&Node>,
) -> Result<Vec<CustomDialect>, ProviderError> {
    let Some(list) = list else {
        return Ok(Vec::new());
    };
    let NodeKind::List(items) = &list.kind else {
        let message = format!(
            "must be a list with one map per dialect, got {}",
            list.kind.brief()
        );
        return Err(source.error(list.place, "dialects", message));
    };
    let mut definitions: Vec<CustomDialect> = Vec::new();
    for (idx, item) in items.iter().enumerate() {
        let path = format!("dialects[{idx}]");
        let (definition, row) = dialect(source, &path, item)?;
        if let Some(first) = definitions
            .iter()
            .position(|known| known.name == definition.name)
        {
            let message = format!("`{}` is the name of dialects[{first}] already", row.name);
            return Err(source.error(item.place, &format!("{path}.name"), message));
        }
        definitions.push(definition);
        source.dialects.push(row);
    }
    Ok(definitions)
}

fn dialect(
    source: &mut Source,
    path: &str,
    node: &Node,
) -> Result<(CustomDialect, ToolDialect), ProviderError> {
    let mut section = Section::open(source, path, node)?;
    let bodies: Vec<_> = CustomBody::ALL
        .iter()
        .map(|body| (body.as_str(), *body))
        .collect();
    let definition = CustomDialect {
        name: section.text(source, "name")?.unwrap_or_default(),
        open: marker(source, &mut section, "open")?,
        close: marker(source, &mut section, "close")?,
        separator: marker(source, &mut section, "separator")?,
        body: section.one_of(source, "body", &bodies)?.unwrap_or_default(),
        name_key: section.text(source, "name_key")?.unwrap_or_default(),
        arguments_key: section.text(source, "arguments_key")?.unwrap_or_default(),
    };
    let row = definition.to_dialect().map_err(|bad| {
        let place = section.value_place(bad.key).unwrap_or(node.place);
        source.error(place, &section.path_of(bad.key), bad.message)
    })?;
    section.finish(source)?;
    Ok((definition, row))
}

/// A marker keeps its white space.
fn marker(
    source: &mut Source,
    section: &mut Section<'_>,
    name: &'static str,
) -> Result<String, ProviderError> {
    let text = section.read(source, name, "text", |kind| match kind {
        NodeKind::Text(text) => Some(text.clone()),
        _ => None,
    })?;
    Ok(text.unwrap_or_default())
}
