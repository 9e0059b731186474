//! Dialects that a user defines.

use serde_json::{Value, json};
use twopass_core::chat::{Arguments, ToolCall, ToolSpec};
use twopass_core::control::TurnSyntax;
use twopass_core::tool_parser::{CustomBody, CustomDialect};

use crate::harness::{end, options, run_all};

fn call() -> ToolCall {
    let Value::Object(object) = json!({"x": 1, "s": "a \"b\""}) else {
        unreachable!()
    };
    ToolCall {
        id: String::new(),
        name: "f".to_owned(),
        arguments: Arguments::from_object(object),
    }
}

fn tool() -> ToolSpec {
    ToolSpec {
        name: "f".to_owned(),
        description: String::new(),
        parameters: json!({"type": "object", "properties": {"x": {"type": "integer"}, "s": {"type": "string"}}}),
    }
}

fn check(custom: &CustomDialect, written: &str) {
    let dialect = custom.to_dialect().unwrap();
    assert_eq!(dialect.write_calls(&[call()]), written);
    let mut options = options("think_tags", "none", vec![tool()]);
    options.syntax = TurnSyntax::new(options.syntax.reasoning().clone(), dialect.syntax());
    let run = run_all(&options, &end("stop", None), &format!("Go. {written} Bye."));
    assert_eq!(run.reply.tool_calls.len(), 1, "{:?}", run.reply);
    assert_eq!(run.reply.tool_calls[0].arguments, call().arguments);
    assert_eq!(run.reply.content, "Go.  Bye.");
}

// Rows A4, E9: markers, keys and bodies of one's own read and write.
#[test]
fn a4_custom_dialects() {
    let plain = CustomDialect {
        name: "mine".to_owned(),
        open: "<<call>>".to_owned(),
        close: "<</call>>".to_owned(),
        name_key: "fn".to_owned(),
        arguments_key: "with".to_owned(),
        ..CustomDialect::default()
    };
    check(
        &plain,
        r#"<<call>>{"fn": "f", "with": {"x":1,"s":"a \"b\""}}<</call>>"#,
    );
    let named = CustomDialect {
        separator: "=>".to_owned(),
        ..plain.clone()
    };
    check(&named, r#"<<call>>f=>{"x":1,"s":"a \"b\""}<</call>>"#);
    let xml = CustomDialect {
        body: CustomBody::XmlParameters,
        name_key: "fn".to_owned(),
        arguments_key: "arg".to_owned(),
        ..plain.clone()
    };
    check(
        &xml,
        "<<call>>\n<fn=f>\n<arg=x>\n1\n</arg>\n<arg=s>\na \"b\"\n</arg>\n</fn>\n<</call>>",
    );
    let python = CustomDialect {
        body: CustomBody::Pythonic,
        ..plain
    };
    check(&python, r#"<<call>>[f(x=1, s="a \"b\"")]<</call>>"#);
}

#[test]
fn a4_bad_custom_dialects_name_the_key() {
    let good = CustomDialect {
        name: "mine".to_owned(),
        open: "<a>".to_owned(),
        close: "</a>".to_owned(),
        ..CustomDialect::default()
    };
    assert!(good.to_dialect().is_ok());
    let key = |custom: CustomDialect| custom.to_dialect().unwrap_err().key;
    assert_eq!(
        key(CustomDialect {
            open: String::new(),
            ..good.clone()
        }),
        "open"
    );
    assert_eq!(
        key(CustomDialect {
            close: "<a>".to_owned(),
            ..good.clone()
        }),
        "close"
    );
    assert_eq!(
        key(CustomDialect {
            name_key: "a b".to_owned(),
            ..good.clone()
        }),
        "name_key"
    );
    for name in [
        "", " ", "a b", "a+b", "auto", "openai", "hermes", "qwen_xml",
    ] {
        let name = name.to_owned();
        assert_eq!(
            key(CustomDialect {
                name,
                ..good.clone()
            }),
            "name"
        );
    }
}
