"""Writes golden.json: what the templates here print under Python's Jinja, as Hugging Face sets it up.

Needs jinja2. Run it in this folder after a template or a conversation below changes.
"""
import json
from jinja2.sandbox import ImmutableSandboxedEnvironment

TOOLS = [
    {"name": "get_weather", "description": "The weather <now> & 'later' in a city.", "parameters": {
        "type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer", "minimum": 1}}, "required": ["city"]}},
    {"name": "note", "description": "Ein Zettel für später", "parameters": {"type": "object", "properties": {}}},
]
CALLS = [{"id": "call_1", "name": "get_weather", "arguments": {"city": "Åre", "days": 2}},
         {"id": "call_2", "name": "note", "arguments": {}}]
U = lambda t: {"role": "user", "content": t}
S = lambda t: {"role": "system", "content": t}
A = lambda t, **k: {"role": "assistant", "content": t, **k}
T = lambda i, t: {"role": "tool", "tool_call_id": i, "content": t}
LOOP = [S("Be brief."), U("Weather in Åre?"), A("", reasoning="Look it up.", tool_calls=CALLS), T("call_1", "sunny"), T("call_2", "ok")]
CASES = [
    ("one user turn", [U("hello")], [], {}),
    ("system and history", [S("Be brief."), U("hi"), A("hello"), U("bye")], [], {}),
    ("tools, no system", [U("Weather?")], TOOLS, {}),
    ("tools and system", [S("Be brief."), U("Weather?")], TOOLS, {}),
    ("calls and results", LOOP, TOOLS, {}),
    ("calls, results, answer, next question", LOOP + [A("Sunny.", reasoning="Done."), U("thanks")], TOOLS, {}),
    ("text beside a call", [U("go"), A("Going.", tool_calls=CALLS[:1]), T("call_1", "x")], TOOLS, {}),
    ("thinking off", [U("hello")], [], {"enable_thinking": False}),
]

def env():
    e = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
    e.filters["tojson"] = lambda x, indent=None: json.dumps(x, ensure_ascii=False, indent=indent)
    def raise_exception(m): raise ValueError(m)
    e.globals["raise_exception"] = raise_exception
    return e

def wire(m):
    w = {"role": m["role"], "content": m["content"]}
    if "reasoning" in m: w["reasoning_content"] = m["reasoning"]
    if "tool_calls" in m:
        w["tool_calls"] = [{"id": c["id"], "type": "function", "function": {"name": c["name"], "arguments": c["arguments"]}} for c in m["tool_calls"]]
    if "tool_call_id" in m: w["tool_call_id"] = m["tool_call_id"]
    return w

out = []
for template, bos, eos in [("qwen3", "", "<|im_end|>"), ("smollm2", "<|im_start|>", "<|im_end|>")]:
    t = env().from_string(open(template + ".jinja", encoding="utf-8").read())
    for name, messages, tools, kwargs in CASES:
        if template == "smollm2" and (tools or kwargs): continue
        extra = {"tools": [{"type": "function", "function": x} for x in tools]} if tools else {}
        text = t.render(messages=[wire(m) for m in messages], add_generation_prompt=True, bos_token=bos, eos_token=eos, **extra, **kwargs)
        out.append({"template": template, "bos": bos, "eos": eos, "name": name, "messages": messages, "tools": tools, "kwargs": kwargs, "expect": text})
json.dump(out, open("golden.json", "w", encoding="utf-8"), ensure_ascii=False, indent=1)
print(len(out), "cases")
