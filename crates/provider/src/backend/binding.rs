//! Grammars of demanded calls and forms, made sure of before the turn begins.

use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use twopass_core::chat::{Diagnostic, DiagnosticKind, Request, ResponseFormat, ToolChoice};
use twopass_core::control::{OnUnboundSchema, TextModel, TurnSettings, demanded_grammar};
use twopass_core::schema::{Place, pointer_step};
use twopass_core::tool_prompt::{LazyGrammar, call_grammar, form_grammar};
use twopass_engine::{Engine, Error as EngineError, ErrorKind as EngineErrorKind, Grammar};

use super::embedded::engine_error;
use super::open_place::keyword_at_end;
use crate::{ErrorKind, ProviderError};

/// Most keywords that are tried when one is to blame.
const MAX_TRIALS: usize = 256;
/// How long a request may look for the keywords to blame, all its schemas together; afterwards
/// only the tool or form is named.
const SEARCH_TIME: Duration = Duration::from_millis(400);
/// How often a search looks whether another one is over.
const SEARCH_POLL: Duration = Duration::from_millis(5);
/// Held by the one search that runs in this process: each trial is a compilation.
static SEARCH: Mutex<()> = Mutex::new(());

/// The grammar that a turn is bound by, or the reason why there is none.
///
/// Where a schema does not compile and the policy is to check, the tools at fault are bound to
/// objects of any kind, a form to nothing; the notes say so. May take a while: not for threads
/// that serve others.
///
/// # Errors
/// A schema does not compile and the policy is to refuse: names the parameter, the tool and
/// the keyword.
pub(super) fn bind(
    engine: &Engine,
    grammar: String,
    request: &Request,
    (model, settings): (&TextModel, &TurnSettings),
) -> Result<(Option<Grammar>, Vec<Diagnostic>), ProviderError> {
    let policy = OnUnboundSchema::of_request(request, settings.on_unbound_schema);
    let policy = policy.map_err(ProviderError::from)?;
    let whole = |lark: String| Grammar {
        is_optional: policy == OnUnboundSchema::Check,
        ..Grammar::whole(lark)
    };
    let error = match compiled(engine, grammar.clone()) {
        Ok(()) => return Ok((Some(whole(grammar)), Vec::new())),
        Err(error) => error,
    };
    if !is_of_schema(&error) {
        return Err(engine_error(error));
    }
    let faults = faults(engine, request);
    let Some(first) = faults.first() else {
        return Err(engine_error(error));
    };
    if policy == OnUnboundSchema::Refuse {
        let error = ProviderError::new(ErrorKind::BadRequest, first.message.clone());
        return Err(error.with_param(&first.param));
    }
    let mut loose = request.clone();
    for fault in &faults {
        match fault.tool_idx {
            Some(idx) => loose.tools[idx].parameters = json!({"type": "object"}),
            None => loose.response_format = ResponseFormat::Text,
        }
    }
    let notes = faults.into_iter().map(|fault| {
        let message = format!("{}; it is only checked afterwards", fault.message);
        Diagnostic::new(DiagnosticKind::Degraded, message)
    });
    let grammar = demanded_grammar(&loose, model, settings);
    Ok((grammar.map(whole), notes.collect()))
}

/// The grammar that binds calls of a free turn; `None` where it does not compile: the calls
/// are checked all the same.
pub(super) fn bind_lazily(engine: &Engine, lazy: LazyGrammar) -> Option<Grammar> {
    let grammar = Grammar {
        lark: lazy.lark,
        opens_at: Some(lazy.marker),
        is_optional: true,
    };
    engine.check_grammar(&grammar).is_ok().then_some(grammar)
}

/// What a turn was in when its grammar could not go on, by what it wrote.
pub(super) struct BoundPart {
    /// The parameter that has the schema.
    pub(super) param: String,
    /// The call or form, in words.
    pub(super) of: String,
    /// Which keyword is likely to blame, in words behind a space; empty if nobody knows.
    pub(super) because: String,
}

/// The call or form that a turn was in.
pub(super) fn bound_part(request: &Request, written: &str) -> BoundPart {
    if let (false, Some(schema)) = (request.tool_choice.forces_call(), request.answer_schema()) {
        let answer = written.rsplit("</").next().unwrap_or_default();
        return BoundPart {
            param: "response_format".to_owned(),
            of: "the answer".to_owned(),
            because: because_at_end(&schema, answer),
        };
    }
    let only = request.tool_choice.only_tool();
    let tools = request.tools.iter().enumerate();
    let allowed: Vec<_> = tools
        .filter(|(_, tool)| only.is_none_or(|name| name == tool.name))
        .collect();
    let last = allowed
        .iter()
        .max_by_key(|(_, tool)| (written.rfind(&tool.name), tool.name.len()))
        .filter(|(_, tool)| allowed.len() == 1 || written.contains(&tool.name));
    match last {
        Some((idx, tool)) => {
            let call = written.rsplit(&tool.name).next().unwrap_or_default();
            BoundPart {
                param: format!("tools[{idx}].parameters"),
                of: format!("the call of `{}`", tool.name),
                because: because_at_end(&tool.parameters, call),
            }
        }
        None => BoundPart {
            param: "tools".to_owned(),
            of: "a call".to_owned(),
            because: String::new(),
        },
    }
}

/// The keyword to blame for JSON of this schema, somewhere in a text, that has no end.
fn because_at_end(schema: &Value, text: &str) -> String {
    let json = text.find(['{', '[']).map_or("", |begin| &text[begin..]);
    because(keyword_at_end(schema, json))
}

fn because<T: std::fmt::Display>(at: Option<(T, String)>) -> String {
    at.map_or_else(String::new, |(keyword, path)| match path.as_str() {
        "" => format!(" because of `{keyword}`"),
        path => format!(" because of `{keyword}` at `{path}`"),
    })
}

/// True if a schema is to blame.
fn is_of_schema(error: &EngineError) -> bool {
    matches!(
        error.kind(),
        EngineErrorKind::BadGrammar | EngineErrorKind::GrammarTooLarge
    )
}

/// A schema that no grammar can be made of.
struct Fault {
    param: String,
    message: String,
    /// `None`: the answer's form.
    tool_idx: Option<usize>,
}

fn compiled(engine: &Engine, lark: String) -> Result<(), EngineError> {
    engine.check_grammar(&Grammar::whole(lark))
}

fn faults(engine: &Engine, request: &Request) -> Vec<Fault> {
    let until = Instant::now() + SEARCH_TIME;
    if let (false, Some(schema)) = (request.tool_choice.forces_call(), request.answer_schema()) {
        let check = |schema: &Value| compiled(engine, form_grammar(schema));
        let fault = fault("the answer", &schema, until, check).map(|message| Fault {
            param: "response_format".to_owned(),
            message,
            tool_idx: None,
        });
        return fault.into_iter().collect();
    }
    let only = request.tool_choice.only_tool();
    let tools = request.tools.iter().enumerate();
    let tools = tools.filter(|(_, tool)| only.is_none_or(|name| name == tool.name));
    tools
        .filter_map(|(idx, tool)| {
            let check = |schema: &Value| {
                let mut tool = tool.clone();
                tool.parameters = schema.clone();
                let choice = ToolChoice::Named(tool.name.clone());
                let lark = call_grammar(&[tool], &choice, false);
                lark.map_or(Ok(()), |lark| compiled(engine, lark))
            };
            let of = format!("the call of `{}`", tool.name);
            Some(Fault {
                message: fault(&of, &tool.parameters, until, check)?,
                param: format!("tools[{idx}].parameters"),
                tool_idx: Some(idx),
            })
        })
        .collect()
}

/// Says why no grammar can be made of this schema; `None` if one can.
fn fault(
    of: &str,
    schema: &Value,
    until: Instant,
    check: impl Fn(&Value) -> Result<(), EngineError>,
) -> Option<String> {
    let error = check(schema).err()?;
    // What is too large is so for no keyword.
    let at = match error.kind() {
        EngineErrorKind::GrammarTooLarge => None,
        _ => keyword_at_fault(schema, until, |schema| check(schema).is_ok()),
    };
    let because = because(at);
    Some(format!(
        "{of} cannot be bound to its schema{because}: {error}"
    ))
}

/// The keyword without which a schema compiles, and the JSON pointer of where it stands: an
/// innermost one, and a type only where nothing else helps. `None` if there is none, or if it
/// was not found by then.
fn keyword_at_fault(
    schema: &Value,
    until: Instant,
    compiles: impl Fn(&Value) -> bool,
) -> Option<(String, String)> {
    let _alone = search_place(until)?;
    let mut places = Vec::new();
    collect(schema, String::new(), &mut places);
    // So `pattern` is named and not `properties`.
    places
        .sort_by_key(|(keyword, path)| (keyword == "type", usize::MAX - path.matches('/').count()));
    let trials = places.into_iter().take(MAX_TRIALS);
    let mut in_time = trials.take_while(|_| Instant::now() < until);
    in_time.find(|(keyword, path)| {
        let mut without = schema.clone();
        let members = without.pointer_mut(path).and_then(Value::as_object_mut);
        members.is_some_and(|members| members.shift_remove(keyword).is_some()) && compiles(&without)
    })
}

/// The place of the one search, unless another one has it until then.
fn search_place(until: Instant) -> Option<MutexGuard<'static, ()>> {
    loop {
        match SEARCH.try_lock() {
            Ok(place) => return Some(place),
            Err(TryLockError::Poisoned(place)) => return Some(place.into_inner()),
            Err(TryLockError::WouldBlock) if Instant::now() < until => {
                std::thread::sleep(SEARCH_POLL);
            }
            Err(TryLockError::WouldBlock) => return None,
        }
    }
}

/// Every keyword of every schema, with the pointer of the schema, outermost first.
fn collect(value: &Value, path: String, places: &mut Vec<(String, String)>) {
    match value {
        Value::Object(members) => {
            for name in members.keys() {
                places.push((name.clone(), path.clone()));
            }
            for (name, value) in members {
                let path = format!("{path}/{}", pointer_step(name));
                match (Place::of(name, value), value) {
                    (Some(Place::Members), Value::Object(schemas)) => {
                        for (name, schema) in schemas {
                            collect(schema, format!("{path}/{}", pointer_step(name)), places);
                        }
                    }
                    (Some(_), _) => collect(value, path, places),
                    (None, _) => {}
                }
            }
        }
        Value::Array(items) => {
            for (idx, value) in items.iter().enumerate() {
                collect(value, format!("{path}/{idx}"), places);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn m5_the_innermost_keyword_is_to_blame() {
        let schema = json!({
            "type": "object",
            "properties": {"a/b": {"anyOf": [{"type": "string", "pattern": "(?=x)"}]}},
        });
        let compiles = |schema: &Value| !schema.to_string().contains("(?=x)");
        let later = Instant::now() + Duration::from_secs(60);
        let found = keyword_at_fault(&schema, later, compiles);
        let expect = ("pattern".to_owned(), "/properties/a~1b/anyOf/0".to_owned());
        assert_eq!(found, Some(expect));
        assert_eq!(
            keyword_at_fault(&json!({"type": "object"}), later, |_| false),
            None
        );
        // Out of time nothing is tried.
        let never = |_: &Value| -> bool { panic!("tried") };
        assert_eq!(keyword_at_fault(&schema, Instant::now(), never), None);
    }
}
