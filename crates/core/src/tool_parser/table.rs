//! The rows.

use super::block::RawStart;
use super::channels::ChannelKind;
use super::dialects::{Body, JsonLayout, ToolDialect};
use super::named_body::NameStyle;
use super::xml_forms::{
    COMPACT_XML, DSML, DSML_SPACED, GLM, GLM_COMPACT, HY3, HY3_OPENSOURCE, HY4, HY4_OPENSOURCE,
    INVOKE_XML, MINICPM5, MINIMAX_M3, QWEN_XML, SEED_XML, STEP3,
};

const HERMES_RESULT: (&str, &str) = ("<tool_response>\n", "\n</tool_response>");

const fn json(layout: JsonLayout, frame: (&'static str, &'static str)) -> Body {
    Body::Json {
        name_key: "name",
        arguments_key: "arguments",
        layout,
        frame,
    }
}

pub(super) const ROW: ToolDialect = ToolDialect {
    name: "",
    aliases: &[],
    models: "",
    opens: &[],
    closes: &[],
    body: json(JsonLayout::Each, ("", "")),
    raw: RawStart::No,
    reasoning: "auto",
    in_auto: true,
    result: HERMES_RESULT,
    source: "the models' chat templates, read 2026-11",
};

/// All tool dialects. Order matters to `auto`: of two that begin alike the first is tried first.
pub const DIALECTS: &[ToolDialect] = &[
    ToolDialect {
        name: "hermes",
        aliases: &["qwen", "qwen25", "qwen3"],
        models: "Hermes 2 and 3, Qwen2.5, Qwen3, Granite 4",
        opens: &["<tool_call>"],
        closes: &["</tool_call>"],
        body: json(JsonLayout::Each, ("\n", "\n")),
        source: "Hermes 2 Pro, Qwen2.5 and Qwen3 chat templates, read 2026-11",
        ..ROW
    },
    ToolDialect {
        name: "granite4",
        models: "Granite 4",
        opens: &["<tool_call>"],
        closes: &["</tool_call>"],
        body: json(JsonLayout::Each, ("\n", "\n")),
        in_auto: false,
        ..ROW
    },
    ToolDialect {
        name: "ernie45",
        models: "ERNIE 4.5 Thinking",
        opens: &["<tool_call>"],
        closes: &["</tool_call>"],
        body: json(JsonLayout::Each, ("\n", "\n")),
        in_auto: false,
        reasoning: "ernie_think",
        ..ROW
    },
    ToolDialect {
        name: "qwen3_coder",
        aliases: &["qwen_xml", "qwen3_xml", "nemotron3", "step3p5"],
        models: "Qwen3-Coder, Qwen3.5, Nemotron 3, Step 3.5",
        opens: &["<tool_call>", "<function="],
        closes: &["</tool_call>"],
        body: Body::Xml(&QWEN_XML),
        ..ROW
    },
    ToolDialect {
        name: "mimo",
        models: "MiMo V2",
        opens: &["<tool_call>", "<function="],
        closes: &["</tool_call>"],
        body: Body::Xml(&COMPACT_XML),
        in_auto: false,
        ..ROW
    },
    ToolDialect {
        name: "glm45",
        models: "GLM 4.5, 4.6",
        opens: &["<tool_call>"],
        closes: &["</tool_call>"],
        body: Body::Xml(&GLM),
        ..ROW
    },
    ToolDialect {
        name: "glm47",
        aliases: &["glm5", "ling3", "laguna"],
        models: "GLM 4.7, 5; Ling 3, Laguna",
        opens: &["<tool_call>"],
        closes: &["</tool_call>"],
        body: Body::Xml(&GLM_COMPACT),
        in_auto: false,
        ..ROW
    },
    ToolDialect {
        name: "seed_oss",
        models: "Seed-OSS",
        opens: &["<seed:tool_call>"],
        closes: &["</seed:tool_call>"],
        body: Body::Xml(&SEED_XML),
        reasoning: "seed_think",
        ..ROW
    },
    ToolDialect {
        name: "minimax_m2",
        models: "MiniMax M2",
        opens: &["<minimax:tool_call>"],
        closes: &["</minimax:tool_call>"],
        body: Body::Xml(&INVOKE_XML),
        ..ROW
    },
    ToolDialect {
        name: "minimax_m3",
        models: "MiniMax M3",
        opens: &["]<]minimax[>[<tool_call>"],
        closes: &["]<]minimax[>[</tool_call>"],
        body: Body::Xml(&MINIMAX_M3),
        reasoning: "mm_think",
        ..ROW
    },
    ToolDialect {
        name: "dots",
        models: "dots",
        opens: &["<dots_function_call>"],
        closes: &["</dots_function_call>"],
        body: Body::Xml(&INVOKE_XML),
        ..ROW
    },
    ToolDialect {
        name: "deepseek_v32",
        models: "DeepSeek V3.2",
        opens: &["<｜DSML｜function_calls>"],
        closes: &["</｜DSML｜function_calls>"],
        body: Body::Xml(&DSML),
        ..ROW
    },
    ToolDialect {
        name: "deepseek_v4",
        models: "DeepSeek V4",
        opens: &["<｜DSML｜tool_calls>"],
        closes: &["</｜DSML｜tool_calls>"],
        body: Body::Xml(&DSML),
        ..ROW
    },
    ToolDialect {
        name: "deepseek_v41",
        models: "DeepSeek V4.1",
        opens: &["<｜DSML｜ calls>"],
        closes: &["</｜DSML｜ calls>"],
        body: Body::Xml(&DSML_SPACED),
        ..ROW
    },
    ToolDialect {
        name: "step3",
        models: "Step 3",
        opens: &["<｜tool_calls_begin｜>"],
        closes: &["<｜tool_calls_end｜>"],
        body: Body::Xml(&STEP3),
        ..ROW
    },
    ToolDialect {
        name: "hy_v3",
        models: "Tencent HY 3",
        opens: &["<tool_calls:opensource>"],
        closes: &["</tool_calls:opensource>"],
        body: Body::Xml(&HY3_OPENSOURCE),
        reasoning: "hy_think",
        ..ROW
    },
    ToolDialect {
        name: "hy_v3_plain",
        models: "Tencent HY 3 without a suffix",
        opens: &["<tool_calls>"],
        closes: &["</tool_calls>"],
        body: Body::Xml(&HY3),
        reasoning: "hy_think",
        ..ROW
    },
    ToolDialect {
        name: "hy_v4",
        models: "Tencent HY 4",
        opens: &["<tool_calls:opensource>"],
        closes: &["</tool_calls:opensource>"],
        body: Body::Xml(&HY4_OPENSOURCE),
        reasoning: "hy_think",
        ..ROW
    },
    ToolDialect {
        name: "hy_v4_plain",
        models: "Tencent HY 4 without a suffix",
        opens: &["<tool_calls>"],
        closes: &["</tool_calls>"],
        body: Body::Xml(&HY4),
        reasoning: "hy_think",
        ..ROW
    },
    ToolDialect {
        name: "minicpm5",
        models: "MiniCPM 5",
        opens: &["<function name=\""],
        closes: &[],
        body: Body::Xml(&MINICPM5),
        ..ROW
    },
    ToolDialect {
        name: "jamba",
        models: "Jamba 1.5",
        opens: &["<tool_calls>"],
        closes: &["</tool_calls>"],
        body: json(JsonLayout::Array, ("", "")),
        ..ROW
    },
    ToolDialect {
        name: "hunyuan_a13b",
        models: "Hunyuan-A13B",
        opens: &["<tool_calls>"],
        closes: &["</tool_calls>"],
        body: json(JsonLayout::Array, ("", "")),
        in_auto: false,
        reasoning: "hunyuan_a13b_think",
        ..ROW
    },
    ToolDialect {
        name: "minimax_m1",
        models: "MiniMax M1",
        opens: &["<tool_calls>"],
        closes: &["</tool_calls>"],
        body: json(JsonLayout::Lines, ("\n", "\n")),
        in_auto: false,
        ..ROW
    },
    ToolDialect {
        name: "longcat",
        models: "LongCat-Flash",
        opens: &["<longcat_tool_call>"],
        closes: &["</longcat_tool_call>"],
        ..ROW
    },
    ToolDialect {
        name: "nemotron_json",
        models: "Llama-Nemotron, Nemotron Nano v2",
        opens: &["<TOOLCALL>"],
        closes: &["</TOOLCALL>"],
        body: json(JsonLayout::Array, ("", "")),
        result: ("<TOOL_RESPONSE>[", "]</TOOL_RESPONSE>"),
        ..ROW
    },
    ToolDialect {
        name: "apertus",
        models: "Apertus",
        opens: &["<|tools_prefix|>"],
        closes: &["<|tools_suffix|>"],
        body: Body::Json {
            name_key: "",
            arguments_key: "",
            layout: JsonLayout::Array,
            frame: ("", ""),
        },
        reasoning: "apertus_inner",
        ..ROW
    },
    ToolDialect {
        name: "cohere",
        models: "Command R7B, Command A",
        opens: &["<|START_ACTION|>"],
        closes: &["<|END_ACTION|>"],
        body: Body::Json {
            name_key: "tool_name",
            arguments_key: "parameters",
            layout: JsonLayout::Array,
            frame: ("", ""),
        },
        result: ("<|START_TOOL_RESULT|>", "<|END_TOOL_RESULT|>"),
        reasoning: "cohere_thinking",
        ..ROW
    },
    ToolDialect {
        name: "command_r_plus",
        models: "Command R+",
        opens: &["Action:"],
        closes: &["```"],
        body: Body::Json {
            name_key: "tool_name",
            arguments_key: "parameters",
            layout: JsonLayout::Array,
            frame: ("\n```json\n", "\n"),
        },
        in_auto: false,
        ..ROW
    },
    ToolDialect {
        name: "internlm2",
        models: "InternLM 2.5, Intern-S1",
        opens: &["<|action_start|><|plugin|>", "<|action_start|> <|plugin|>"],
        closes: &["<|action_end|>"],
        body: Body::Json {
            name_key: "name",
            arguments_key: "parameters",
            layout: JsonLayout::Each,
            frame: ("", ""),
        },
        ..ROW
    },
    ToolDialect {
        name: "granite",
        models: "Granite 3",
        opens: &["<|tool_call|>", "<tool_call>"],
        closes: &[],
        body: json(JsonLayout::Array, ("", "")),
        ..ROW
    },
    ToolDialect {
        name: "granite_20b_fc",
        models: "Granite 20B function calling",
        opens: &["<function_call>"],
        closes: &[],
        body: json(JsonLayout::Each, (" ", "")),
        ..ROW
    },
    ToolDialect {
        name: "phi4_mini",
        models: "Phi-4-mini",
        opens: &["functools"],
        closes: &[],
        body: json(JsonLayout::Array, ("", "")),
        ..ROW
    },
    ToolDialect {
        name: "firefunction",
        models: "Firefunction v2",
        opens: &["functools"],
        closes: &[],
        body: json(JsonLayout::Array, ("", "")),
        in_auto: false,
        ..ROW
    },
    ToolDialect {
        name: "gigachat3",
        models: "GigaChat 3",
        opens: &["<|message_sep|>\n\nfunction call<|role_sep|>\n"],
        closes: &[],
        ..ROW
    },
    ToolDialect {
        name: "gigachat31",
        aliases: &["gigachat35"],
        models: "GigaChat 3.1",
        opens: &["<|function_call|>"],
        closes: &[],
        ..ROW
    },
    ToolDialect {
        name: "mistral",
        models: "Mistral 7B v0.3, Nemo",
        opens: &["[TOOL_CALLS]"],
        closes: &[],
        body: json(JsonLayout::Array, (" ", "")),
        result: ("[TOOL_RESULTS]", "[/TOOL_RESULTS]"),
        ..ROW
    },
    ToolDialect {
        name: "mistral_v11",
        aliases: &["magistral", "ministral3"],
        models: "Mistral Small 3, Devstral, Magistral, Ministral 3",
        opens: &["[TOOL_CALLS]"],
        closes: &[],
        body: Body::Named {
            style: NameStyle::Mistral,
            call_open: "[TOOL_CALLS]",
            separators: &["[ARGS]", "[CALL_ID]"],
            call_close: "",
        },
        result: ("[TOOL_RESULTS]", "[/TOOL_RESULTS]"),
        reasoning: "think_bracket",
        ..ROW
    },
    ToolDialect {
        name: "kimi_k2",
        models: "Kimi K2, K2.5",
        opens: &["<|tool_calls_section_begin|>", "<|tool_call_begin|>"],
        closes: &["<|tool_calls_section_end|>", "<|tool_call_end|>"],
        body: Body::Named {
            style: NameStyle::Kimi,
            call_open: "<|tool_call_begin|>",
            separators: &["<|tool_call_argument_begin|>"],
            call_close: "<|tool_call_end|>",
        },
        ..ROW
    },
    ToolDialect {
        name: "deepseek_v3",
        models: "DeepSeek V3-0324, R1-0528",
        opens: &["<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>"],
        closes: &["<｜tool▁calls▁end｜>", "<｜tool▁call▁end｜>"],
        body: Body::Named {
            style: NameStyle::DeepseekFenced,
            call_open: "<｜tool▁call▁begin｜>",
            separators: &["<｜tool▁sep｜>"],
            call_close: "<｜tool▁call▁end｜>",
        },
        result: ("<｜tool▁output▁begin｜>", "<｜tool▁output▁end｜>"),
        ..ROW
    },
    ToolDialect {
        name: "deepseek_v31",
        models: "DeepSeek V3.1",
        opens: &["<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>"],
        closes: &["<｜tool▁calls▁end｜>", "<｜tool▁call▁end｜>"],
        body: Body::Named {
            style: NameStyle::Deepseek,
            call_open: "<｜tool▁call▁begin｜>",
            separators: &["<｜tool▁sep｜>"],
            call_close: "<｜tool▁call▁end｜>",
        },
        result: ("<｜tool▁output▁begin｜>", "<｜tool▁output▁end｜>"),
        in_auto: false,
        ..ROW
    },
    ToolDialect {
        name: "plamo3",
        models: "PLaMo 3",
        opens: &[
            "<|plamo:begin_tool_requests:plamo|>",
            "<|plamo:begin_tool_request:plamo|><|plamo:begin_tool_name:plamo|>",
        ],
        closes: &[
            "<|plamo:end_tool_requests:plamo|>",
            "<|plamo:end_tool_arguments:plamo|><|plamo:end_tool_request:plamo|>",
        ],
        body: Body::Named {
            style: NameStyle::Plain,
            call_open: "<|plamo:begin_tool_request:plamo|><|plamo:begin_tool_name:plamo|>",
            separators: &[
                "<|plamo:end_tool_name:plamo|><|plamo:begin_tool_arguments:plamo|><|plamo:constrain|>json<|plamo:msg|>",
                "<|plamo:end_tool_name:plamo|><|plamo:begin_tool_arguments:plamo|><|plamo:msg|>",
            ],
            call_close: "<|plamo:end_tool_arguments:plamo|><|plamo:end_tool_request:plamo|>",
        },
        reasoning: "plamo_think",
        source: "vLLM's PLaMo 3 parsers and their tests, read 2026-11",
        ..ROW
    },
    ToolDialect {
        name: "functionary_v31",
        models: "Functionary v3.1, Llama 3.1 custom functions",
        opens: &["<function="],
        closes: &["</function>"],
        body: Body::Named {
            style: NameStyle::Plain,
            call_open: "<function=",
            separators: &[">"],
            call_close: "</function>",
        },
        ..ROW
    },
    ToolDialect {
        name: "functionary_v32",
        models: "Functionary v3.2",
        opens: &[">>>"],
        closes: &[],
        body: Body::Named {
            style: NameStyle::Recipient,
            call_open: ">>>",
            separators: &["\n"],
            call_close: "",
        },
        raw: RawStart::AnswerStart,
        in_auto: false,
        ..ROW
    },
    ToolDialect {
        name: "functiongemma",
        models: "FunctionGemma",
        opens: &["<start_function_call>"],
        closes: &["<end_function_call>"],
        body: Body::Gemma { quote: "<escape>" },
        result: ("<start_function_response>", "<end_function_response>"),
        ..ROW
    },
    ToolDialect {
        name: "gemma4",
        models: "Gemma 4",
        opens: &["<|tool_call>"],
        closes: &["<tool_call|>"],
        body: Body::Gemma { quote: "<|\"|>" },
        result: ("<|tool_response>", "<tool_response|>"),
        reasoning: "gemma4_channel",
        ..ROW
    },
    ToolDialect {
        name: "lfm2",
        models: "LFM2, LFM2.5",
        opens: &["<|tool_call_start|>"],
        closes: &["<|tool_call_end|>"],
        body: Body::Python { in_list: true },
        result: ("<|tool_response_start|>", "<|tool_response_end|>"),
        ..ROW
    },
    ToolDialect {
        name: "olmo3",
        models: "OLMo 3",
        opens: &["<function_calls>"],
        closes: &["</function_calls>"],
        body: Body::Python { in_list: false },
        ..ROW
    },
    ToolDialect {
        name: "pythonic",
        aliases: &["llama4_pythonic"],
        models: "Llama 3.2, Llama 4, ToolACE",
        opens: &["<|python_start|>"],
        closes: &["<|python_end|>"],
        body: Body::Python { in_list: true },
        raw: RawStart::LineStart,
        ..ROW
    },
    ToolDialect {
        name: "llama3_json",
        aliases: &["llama4_json"],
        models: "Llama 3.1 to 3.3, Llama 4",
        opens: &["<|python_tag|>"],
        closes: &[],
        body: Body::Json {
            name_key: "name",
            arguments_key: "parameters",
            layout: JsonLayout::Semicolons,
            frame: ("", ""),
        },
        raw: RawStart::AnswerStart,
        ..ROW
    },
    ToolDialect {
        name: "xlam",
        models: "xLAM 2",
        body: json(JsonLayout::Array, ("", "")),
        raw: RawStart::AnswerStart,
        in_auto: false,
        ..ROW
    },
    ToolDialect {
        name: "raw_json",
        aliases: &["json"],
        models: "prompted models",
        body: json(JsonLayout::Lines, ("", "")),
        raw: RawStart::AnswerStart,
        source: "prompting practice",
        ..ROW
    },
    ToolDialect {
        name: "fenced",
        aliases: &["fenced_tool_call", "markdown"],
        models: "prompted models",
        opens: &["```tool_call"],
        closes: &["```"],
        body: json(JsonLayout::Each, ("\n", "\n")),
        source: "prompting practice",
        ..ROW
    },
    ToolDialect {
        name: "harmony",
        aliases: &["gpt_oss", "openai_harmony"],
        models: "gpt-oss",
        body: Body::Channels(ChannelKind::Harmony),
        source: "the Harmony format description, read 2026-11",
        reasoning: "harmony",
        ..ROW
    },
    ToolDialect {
        name: "kimi_k3",
        models: "Kimi K3",
        body: Body::Channels(ChannelKind::KimiK3),
        reasoning: "kimi_k3",
        ..ROW
    },
    ToolDialect {
        name: "inkling",
        models: "Inkling",
        body: Body::Channels(ChannelKind::Inkling),
        reasoning: "inkling",
        ..ROW
    },
    ToolDialect {
        name: "beam",
        models: "Beam",
        body: Body::Channels(ChannelKind::Beam),
        in_auto: false,
        reasoning: "beam",
        source: "dynamo-parsers-v2 0.9.6, grammar and tests of the format, read 2026-11",
        ..ROW
    },
    ToolDialect {
        name: "muse",
        aliases: &["muse_glimmer", "muse_spark"],
        models: "Muse Glimmer, Muse Spark",
        body: Body::Channels(ChannelKind::Muse),
        in_auto: false,
        reasoning: "muse",
        source: "dynamo-parsers-v2 0.9.6, grammar and tests of the format, read 2026-11",
        ..ROW
    },
];
