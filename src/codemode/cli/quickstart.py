"""``codemode quickstart``: writes an example agent with five tools for one framework."""

from __future__ import annotations

import argparse
import sys
from importlib.util import find_spec
from pathlib import Path

from .exits import SUCCEEDED, UsageError

_TEMPLATE_HEAD = '''"""A shop's agent with five tools. It runs as it is: a scripted model writes the program. {run}

To use a real model, {real}.
"""

{imports}

ORDERS = {{
    "ada": [
        {{"id": "A-1", "item": "bolt", "count": 9, "cents": 900}},
        {{"id": "A-2", "item": "nut", "count": 2, "cents": 40}},
    ]
}}


def find_orders(customer: str) -> list[dict]:
    """Find the orders of a customer: id, item, count, cents."""
    return ORDERS[customer]


def stock(product: str) -> int:
    """How many of a product are in stock."""
    return {{"bolt": 4, "nut": 120}}[product]


def price(product: str) -> int:
    """What one of a product costs, in cents."""
    return {{"bolt": 100, "nut": 20}}[product]


def refund(order: str, cents: int) -> str:
    """Refund an order. A person has to approve it."""
    return f"refunded {{cents}} cents for {{order}}"


def send_mail(to: str, text: str) -> str:
    """Send a mail to a customer."""
    return f"mail to {{to}}: {{text}}"


# What a model writes: it finds the orders that cannot be delivered, and refunds them.
PROGRAM = """
const orders = await tools.find_orders({{ customer: "ada" }});
const left = await Promise.all(orders.map((order) => tools.stock({{ product: order.item }})));
const short = orders.filter((order, at) => left[at] < order.count);
const done = await Promise.all(short.map((order) => tools.refund({{ order: order.id, cents: order.cents }})));
if (done.length) await tools.send_mail({{ to: "ada", text: done.join("; ") }});
return done;
"""


def ask(what: str) -> bool:
    """Ask the person at the terminal."""
    return input(f"Approve {{what}}? [y/N] ").strip().lower() in ("y", "yes")

'''
_TEMPLATE_BY_FRAMEWORK = {
    "plain": (
        "call yours in `ask_model`, with `code_mode.name`, `.description` and `.input_schema` as its tool",
        "import json\n\nfrom codemode import CodeModeError, create_code_mode_tool, failure_text, tool",
        '''
def approve(request) -> dict:
    return {"approved": ask(f"{request.tool_name}({request.input})")}


code_mode = create_code_mode_tool(
    [find_orders, stock, price, tool(needs_approval=True)(refund), send_mail],
    {"approval": {"on_approval_required": approve}},
)


def run(arguments: dict) -> str:
    """Run a program, and return what the model reads: its value, or why it failed and which calls are done."""
    try:
        output = code_mode.to_model_output(code_mode.execute_sync(arguments))
    except CodeModeError as error:
        return failure_text(error, arguments["js"])
    return output["value"] if output["type"] == "text" else json.dumps(output["value"])


def ask_model(messages: list[dict]) -> dict:
    """Stand in for a real model: write the program, then say what it gave."""
    if messages[-1]["role"] == "user":
        return {"tool": code_mode.name, "input": {"js": PROGRAM}}
    return {"text": f"Done: {messages[-1]['content']}"}


messages = [{"role": "user", "content": "Refund what we cannot deliver to ada."}]
while "tool" in (answer := ask_model(messages)):
    messages.append({"role": "tool", "content": run(answer["input"])})
print(answer["text"])
''',
    ),
    "pydantic-ai": (
        'give `Agent("openai:gpt-5-mini", ...)` in place of `model`',
        """from codemode_pydantic_ai import CodeMode
from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults, Tool
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import FunctionModel""",
        '''
def ask_model(messages, _info) -> ModelResponse:
    """Stand in for a real model: write the program, then say what it gave."""
    for part in messages[-1].parts:
        if isinstance(part, ToolReturnPart):
            return ModelResponse([TextPart(f"Done: {part.content}")])
    return ModelResponse([ToolCallPart("codeMode", {"js": PROGRAM})])


model = FunctionModel(ask_model)
agent = Agent(
    model,
    tools=[find_orders, stock, price, Tool(refund, requires_approval=True), send_mail],
    capabilities=[CodeMode()],
    output_type=[str, DeferredToolRequests],
)
result = agent.run_sync("Refund what we cannot deliver to ada.")
while isinstance(result.output, DeferredToolRequests):  # calls of the program that wait for a person
    answers = {one.tool_call_id: ask(f"{one.tool_name}({one.args})") for one in result.output.approvals}
    answered = DeferredToolResults(approvals=answers)
    result = agent.run_sync(message_history=result.all_messages(), deferred_tool_results=answered)
print(result.output)
''',
    ),
    "langchain": (
        'give `create_agent("openai:gpt-5-mini", ...)` in place of `model`',
        """from codemode_langchain import CodeModeMiddleware
from langchain.agents import create_agent
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command""",
        '''
class ScriptedModel(GenericFakeChatModel):
    """Stand in for a real model: write the program, then say that it is done."""

    def bind_tools(self, tools, **_settings):
        return self


call = {"name": "codeMode", "args": {"js": PROGRAM}, "id": "call_1", "type": "tool_call"}
model = ScriptedModel(messages=iter([AIMessage("", tool_calls=[call]), AIMessage("Done.")]))
agent = create_agent(
    model,
    [find_orders, stock, price, refund, send_mail],
    middleware=[CodeModeMiddleware(approve={"refund": True})],
    checkpointer=InMemorySaver(),
)
config = {"configurable": {"thread_id": "1"}}
state = agent.invoke({"messages": "Refund what we cannot deliver to ada."}, config)
while waiting := state.get("__interrupt__"):  # calls of the program that wait for a person
    answers = {}
    for one in waiting:
        request = one.value["action_requests"][0]
        is_approved = ask(f"{request['name']}({request['args']})")
        answers[one.id] = {"type": "approve"} if is_approved else {"type": "reject", "message": "no"}
    state = agent.invoke(Command(resume=answers), config)
print(state["messages"][-2].content, state["messages"][-1].content)
''',
    ),
    "openai-agents": (
        'give `Agent(model="gpt-5.2", ...)` in place of `ScriptedModel()`',
        """import json

from agents import Agent, Model, ModelResponse, RunConfig, Runner, Usage, function_tool
from codemode_openai_agents import code_mode
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText""",
        '''
class ScriptedModel(Model):
    """Stand in for a real model: write the program, then say what it gave."""

    async def get_response(self, system_instructions, input, *_rest, **_settings) -> ModelResponse:
        last = input[-1]
        outputs = [last["output"]] if isinstance(last, dict) and "output" in last else []
        if outputs:
            text = ResponseOutputText(text=f"Done: {outputs[-1]}", type="output_text", annotations=[])
            said = ResponseOutputMessage(id="m", content=[text], role="assistant", status="completed", type="message")
        else:
            arguments = json.dumps({"js": PROGRAM})
            call = {"arguments": arguments, "call_id": "call_1", "name": "codeMode", "type": "function_call"}
            said = ResponseFunctionToolCall(**call)
        return ModelResponse(output=[said], usage=Usage(), response_id=None)

    def stream_response(self, *_given, **_settings):
        raise NotImplementedError


tools = [function_tool(one) for one in (find_orders, stock, price, send_mail)]
tools.append(function_tool(needs_approval=True)(refund))
agent = Agent(name="Shop", model=ScriptedModel(), tools=[code_mode(tools)])
config = RunConfig(tracing_disabled=True)
result = Runner.run_sync(agent, "Refund what we cannot deliver to ada.", run_config=config)
while result.interruptions:  # calls of the program that wait for a person
    state = result.to_state()
    for one in result.interruptions:
        if ask(f"{one.name}({one.arguments})"):
            state.approve(one)
        else:
            state.reject(one)
    result = Runner.run_sync(agent, state, run_config=config)
print(result.final_output)
''',
    ),
}


def _format_interpreter_path() -> str:
    """Return the interpreter that runs this command, relative to the current folder if it is below."""
    path = Path(sys.executable)
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def write_quickstart_agent(options: argparse.Namespace) -> int:
    """Write the file. Raises `UsageError` for a file that exists or cannot be written."""
    path = Path(options.file)
    real, imports, body = _TEMPLATE_BY_FRAMEWORK[options.framework]
    text = _TEMPLATE_HEAD.format(run=f"Run: python {path.name}", real=real, imports=imports) + body
    try:
        with path.open("w" if options.force else "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise UsageError(f"{path} already exists: name another file, or use --force to replace it") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from error
    print(f"wrote {path}; run it with: {_format_interpreter_path()} {path}")
    if options.framework != "plain" and find_spec(f"codemode_{options.framework.replace('-', '_')}") is None:
        name = {"langchain": "langchain[agents]"}.get(options.framework, options.framework)
        print(f"it needs a plugin: pip install 'codemode-{name}', or in a clone './integrations/{name}'")
    return SUCCEEDED
