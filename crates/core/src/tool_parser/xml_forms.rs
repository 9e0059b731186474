//! The elements of the XML-like dialects.

use super::dialects::XmlForm;
use super::xml_values::{ValueFraming, ValueTyping};

pub(super) const QWEN_XML: XmlForm = XmlForm {
    call_open: "<function=",
    name_end: ">",
    call_close: "</function>",
    param_open: "<parameter=",
    key_end: ">",
    value_open: "",
    param_close: "</parameter>",
    typing: ValueTyping::Schema,
    framing: ValueFraming::Lines,
    noise: &[],
    gap: "\n",
    one_group: false,
};

pub(super) const COMPACT_XML: XmlForm = XmlForm {
    framing: ValueFraming::Verbatim,
    gap: "",
    ..QWEN_XML
};

pub(super) const SEED_XML: XmlForm = XmlForm {
    framing: ValueFraming::Verbatim,
    ..QWEN_XML
};

pub(super) const INVOKE_XML: XmlForm = XmlForm {
    call_open: "<invoke name=\"",
    name_end: "\">",
    call_close: "</invoke>",
    param_open: "<parameter name=\"",
    key_end: "\">",
    framing: ValueFraming::Verbatim,
    one_group: true,
    ..QWEN_XML
};

pub(super) const DSML: XmlForm = XmlForm {
    call_open: "<｜DSML｜invoke name=\"",
    name_end: "\">",
    call_close: "</｜DSML｜invoke>",
    param_open: "<｜DSML｜parameter name=\"",
    key_end: ">",
    param_close: "</｜DSML｜parameter>",
    typing: ValueTyping::Attribute,
    framing: ValueFraming::Verbatim,
    one_group: true,
    ..QWEN_XML
};

pub(super) const DSML_SPACED: XmlForm = XmlForm {
    call_open: "<｜DSML｜ invoke name=\"",
    call_close: "</｜DSML｜ invoke>",
    param_open: "<｜DSML｜ parameter name=\"",
    param_close: "</｜DSML｜ parameter>",
    ..DSML
};

pub(super) const GLM: XmlForm = XmlForm {
    call_open: "<tool_call>",
    name_end: "",
    call_close: "</tool_call>",
    param_open: "<arg_key>",
    key_end: "</arg_key>",
    value_open: "<arg_value>",
    param_close: "</arg_value>",
    typing: ValueTyping::SchemaOrJson,
    framing: ValueFraming::Verbatim,
    noise: &[],
    gap: "\n",
    one_group: false,
};

pub(super) const GLM_COMPACT: XmlForm = XmlForm { gap: "", ..GLM };

pub(super) const HY3: XmlForm = XmlForm {
    call_open: "<tool_call>",
    name_end: "<tool_sep>",
    call_close: "</tool_call>",
    one_group: true,
    ..GLM
};

pub(super) const HY3_OPENSOURCE: XmlForm = XmlForm {
    call_open: "<tool_call:opensource>",
    name_end: "<tool_sep:opensource>",
    call_close: "</tool_call:opensource>",
    param_open: "<arg_key:opensource>",
    key_end: "</arg_key:opensource>",
    value_open: "<arg_value:opensource>",
    param_close: "</arg_value:opensource>",
    one_group: true,
    ..GLM
};

pub(super) const HY4: XmlForm = XmlForm {
    gap: "",
    one_group: true,
    ..GLM
};

pub(super) const HY4_OPENSOURCE: XmlForm = XmlForm {
    name_end: "",
    gap: "",
    ..HY3_OPENSOURCE
};

pub(super) const MINIMAX_M3: XmlForm = XmlForm {
    call_open: "]<]minimax[>[<invoke name=\"",
    name_end: "\">",
    call_close: "]<]minimax[>[</invoke>",
    param_open: "]<]minimax[>[<",
    key_end: ">",
    value_open: "",
    param_close: "",
    typing: ValueTyping::SchemaOrJson,
    framing: ValueFraming::Verbatim,
    noise: &[],
    gap: "",
    one_group: true,
};

pub(super) const STEP3: XmlForm = XmlForm {
    call_open: "<steptml:invoke name=\"",
    name_end: "\">",
    call_close: "</steptml:invoke>",
    param_open: "<steptml:parameter name=\"",
    key_end: "\">",
    param_close: "</steptml:parameter>",
    framing: ValueFraming::Verbatim,
    noise: &[
        "<｜tool_call_begin｜>",
        "function",
        "<｜tool_sep｜>",
        "<｜tool_call_end｜>",
    ],
    gap: "",
    one_group: true,
    ..QWEN_XML
};

pub(super) const MINICPM5: XmlForm = XmlForm {
    call_open: "<function name=\"",
    name_end: "\">",
    call_close: "</function>",
    param_open: "<param name=\"",
    key_end: "\">",
    param_close: "</param>",
    framing: ValueFraming::Cdata,
    gap: "",
    ..QWEN_XML
};
