//! `tools`. Rows H1, H2, H3, I3, I4.

use serde_json::{Value, json};

use crate::run::Place;

const NAMES: [&str; 8] = [
    "read_file",
    "create_file",
    "edit_file",
    "list_directory",
    "search_codebase",
    "execute_bash",
    "recall_memory",
    "store_memory",
];

/// What is printed, as JSON.
fn tools(args: &[&str]) -> Vec<Value> {
    let args: Vec<&str> = ["tools"].iter().chain(args).copied().collect();
    let ran = Place::new().run(&args);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{args:?}");
    serde_json::from_str(&ran.stdout).unwrap()
}

/// Every wire has the same names, descriptions and schemas, each in its own form.
#[test]
fn h1_h2_i3_i4_one_definition_in_every_form() {
    let openai = tools(&["--style", "openai"]);
    let names: Vec<&str> = openai
        .iter()
        .filter_map(|tool| tool["function"]["name"].as_str())
        .collect();
    assert_eq!(names, NAMES);
    assert_eq!(tools(&["--style", "openai", "--json"]), openai);

    let responses = tools(&["--style", "responses"]);
    let anthropic = tools(&["--style", "anthropic"]);
    let hermes = Place::new().run(&["tools", "--style", "hermes"]).stdout;
    assert!(
        hermes.starts_with("# Tools\n") && hermes.contains("<tool_call>"),
        "{hermes}"
    );
    let (_, list) = hermes.split_once("<tools>\n").unwrap();
    let hermes: Vec<Value> = list
        .split_once("\n</tools>")
        .unwrap()
        .0
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(hermes, openai);
    for (idx, tool) in openai.iter().enumerate() {
        assert_eq!(tool["type"], "function");
        let function = &tool["function"];
        let (name, description, schema) = (
            &function["name"],
            &function["description"],
            &function["parameters"],
        );
        assert_eq!(
            anthropic[idx],
            json!({"name": name, "description": description, "input_schema": schema})
        );
        assert_eq!(
            responses[idx],
            json!({"type": "function", "name": name, "description": description, "parameters": schema, "strict": false})
        );
    }
}

#[test]
fn i4_lists_and_markdown() {
    let place = Place::new();
    let ran = place.run(&["tools"]);
    assert!(
        ran.stdout
            .starts_with("read_file        reads     Reads a text file"),
        "{}",
        ran.stdout
    );
    let ran = place.run(&["tools", "--json"]);
    let lines: Vec<Value> = ran
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!((lines.len(), &lines[5]["effect"]), (8, &json!("executes")));
    let ran = place.run(&[
        "tools",
        "--style",
        "markdown",
        "--memory",
        "append_and_delete",
    ]);
    for part in [
        "### recall_memory\nSearches your long-term memory",
        "  - n_results (integer, 1 to 50, default 5): Most memories to return.\n",
        "### delete_from_memory\n",
        "  - lines (array of string, required): The lines to remove.\n",
    ] {
        assert!(ran.stdout.contains(part), "{part}: {}", ran.stdout);
    }
}

#[test]
fn h3_our_tools_pass_the_lint() {
    for strategy in [
        "overwrite",
        "patch_and_replace",
        "append_and_delete",
        "update",
    ] {
        let ran = Place::new().run(&["tools", "--lint", "--memory", strategy]);
        assert!(
            ran.stdout.ends_with(" tools, nothing to say\n"),
            "{}",
            ran.stdout
        );
        assert_eq!(ran.code, 0);
    }
    let ran = Place::new().run(&["tools", "--lint", "--json"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (0, ""));
    let ran = Place::new().run(&["tools", "--style", "yaml"]);
    assert_eq!(ran.code, 2);
}
