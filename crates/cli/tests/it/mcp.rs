//! `tools --serve-mcp` with a client that others wrote: the Python package `mcp`, whose folder
//! is named by `TWOPASS_TEST_MCP_PYTHON`. Row I12.

use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::run::Place;

const CLIENT: &str = r#"
import asyncio, json, sys
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

async def main():
    program, folder = sys.argv[1:3]
    server = StdioServerParameters(
        command=program,
        args=["tools", "--serve-mcp", "--workspace", folder],
        env={"HOME": folder + "/home"},
    )
    async with stdio_client(server) as (read, write):
        async with ClientSession(read, write) as session:
            await session.initialize()
            tools = (await session.list_tools()).tools
            found = {"tools": [tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in tools], "calls": []}
            for name, arguments in json.loads(sys.argv[3]):
                result = await session.call_tool(name, arguments)
                result = result.model_dump(mode="json", by_alias=True)
                found["calls"].append([result.get("isError", False), result["content"][0]["text"]])
            print(json.dumps(found))

asyncio.run(main())
"#;

#[test]
fn i12_another_program_uses_our_tools() {
    let Ok(packages) = std::env::var("TWOPASS_TEST_MCP_PYTHON") else {
        eprintln!("skipped: TWOPASS_TEST_MCP_PYTHON is not set");
        return;
    };
    let place = Place::new();
    let calls = json!([
        ["create_file", {"file_path": "a.txt", "content": "hello\n"}],
        ["edit_file", {"file_path": "a.txt", "old_string": "hello", "new_string": "goodbye"}],
        ["search_codebase", {"pattern": "good"}],
        ["execute_bash", {"command": "cat a.txt; env | grep -c HOME"}],
        ["store_memory", {"content": "The user likes tea."}],
        ["recall_memory", {"query": "tea"}],
        ["read_file", {"file_path": "../secret"}],
        ["read_file", {"path": "a.txt"}],
        ["no_such_tool", {}],
    ]);
    let output = Command::new("python3")
        .args(["-c", CLIENT, env!("CARGO_BIN_EXE_twopass")])
        .arg(place.path())
        .arg(calls.to_string())
        .env("PYTHONPATH", packages)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    let found: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{stderr}"));

    let schema = |tool: &Value| tool["inputSchema"].clone();
    let ours = place.run(&["tools", "--json"]).stdout;
    let ours: Vec<Value> = ours
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let listed = found["tools"].as_array().unwrap();
    assert_eq!(listed.len(), ours.len());
    for (tool, own) in listed.iter().zip(&ours) {
        assert_eq!(
            (&tool["name"], &tool["description"]),
            (&own["name"], &own["description"])
        );
        assert_eq!(schema(tool), own["parameters"]);
        assert_eq!(
            tool["annotations"]["readOnlyHint"],
            own["effect"] == "reads"
        );
    }
    let expect = [
        (false, "created `a.txt`"),
        (false, "changed `a.txt` at line 1"),
        (false, "a.txt:1:goodbye"),
        (false, "goodbye\n1\n"),
        (false, "stored"),
        (false, "The user likes tea."),
        (true, "leads out of the workspace"),
        (true, "file_path"),
        (true, "unknown tool `no_such_tool`"),
    ];
    for (call, (is_error, text)) in found["calls"].as_array().unwrap().iter().zip(expect) {
        assert_eq!(call[0], is_error, "{call}");
        assert!(call[1].as_str().unwrap().contains(text), "{text}: {call}");
    }
    assert!(
        place
            .path()
            .join("home/.local/share/twopass/memory.db")
            .exists()
    );
}

#[test]
fn i2_servers_that_cannot_be_used_are_errors() {
    let place = Place::new();
    for (server, word) in [
        ("nameless", "NAME=COMMAND"),
        ("x=", "NAME=COMMAND"),
        (
            "x=/no/such/program",
            "the tool server `x` cannot be used: cannot start `/no/such/program`: ",
        ),
    ] {
        let ran = place.run(&["tools", "--mcp", server]);
        assert_eq!((ran.code, ran.stdout.as_str()), (2, ""));
        assert!(ran.stderr.contains(word), "{}", ran.stderr);
    }
}
