"""Traces have a span for each call of a program, below that of the program

OpenTelemetry, by pydantic-ai's own instrumentation.
"""

from __future__ import annotations

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pydantic_ai.capabilities import Instrumentation
from pydantic_ai.models.instrumented import InstrumentationSettings
from pydantic_ai_sides import OURS, Side, main
from script_steps import yes


def stock(product: str) -> int:
    return len(product)


async def answer(side: Side) -> str:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    instrumentation = Instrumentation(settings=InstrumentationSettings(tracer_provider=provider))
    js, python = "return await tools.stock({ product: 'nut' })", "await stock(product='nut')"
    await side.run(js, python, [stock], capabilities=[instrumentation])
    spans = {one.context.span_id: one for one in exporter.get_finished_spans() if one.context}
    outer = "codeMode" if side.name == OURS else "run_code"
    (nested,) = [one for one in spans.values() if (one.attributes or {}).get("gen_ai.tool.name") == "stock"]
    above = nested.parent
    while above is not None:
        if (spans[above.span_id].attributes or {}).get("gen_ai.tool.name") == outer:
            return yes(True)
        above = spans[above.span_id].parent
    return "no"


if __name__ == "__main__":
    main(answer)
