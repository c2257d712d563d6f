// An agent of the Vercel AI SDK, in Node.
//
// Run it with `node agent.mjs [--responses] [--stream] [QUESTION]`. The model is at OPENAI_BASE_URL;
// spans go to OTEL_EXPORTER_OTLP_ENDPOINT where it is set.

import { createOpenAI } from "@ai-sdk/openai";
import { OTLPTraceExporter } from "@opentelemetry/exporter-trace-otlp-http";
import { resourceFromAttributes } from "@opentelemetry/resources";
import { BatchSpanProcessor, NodeTracerProvider } from "@opentelemetry/sdk-trace-node";
import { generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

const PARCELS = { A100: "in transit, arrives on Friday", B200: "lost by the carrier" };

const tools = {
  track_parcel: tool({
    description: "Return where the parcel of an order is.",
    inputSchema: z.object({ order_id: z.string() }),
    execute: async ({ order_id }) => `${order_id}: ${PARCELS[order_id]}`,
  }),
  refund: tool({
    description: "Refund an order.",
    inputSchema: z.object({ order_id: z.string(), reason: z.string() }),
    execute: async ({ order_id, reason }) => `${order_id}: refunded, because ${reason}`,
  }),
};

const words = process.argv.slice(2).filter((word) => !word.startsWith("--"));
const options = new Set(process.argv.slice(2).filter((word) => word.startsWith("--")));

const isTraced = Boolean(process.env.OTEL_EXPORTER_OTLP_ENDPOINT);
const provider = new NodeTracerProvider({
  resource: resourceFromAttributes({ "service.name": "order-desk" }),
  spanProcessors: isTraced ? [new BatchSpanProcessor(new OTLPTraceExporter())] : [],
});
provider.register();

const openai = createOpenAI({ apiKey: process.env.OPENAI_API_KEY ?? "none" });
const request = {
  model: options.has("--responses") ? openai.responses("scripted") : openai.chat("scripted"),
  system: "You are the order desk of a shop. Use the tools, and answer in one sentence per order.",
  prompt: words.join(" ") || "Where are my orders A100 and B200?",
  tools,
  stopWhen: stepCountIs(8),
  maxRetries: 0,
  experimental_telemetry: { isEnabled: isTraced, functionId: "order-desk" },
};
try {
  if (options.has("--stream")) {
    const answer = streamText({ ...request, onError: ({ error }) => { throw error; } });
    console.log(await answer.text);
  } else {
    console.log((await generateText(request)).text);
  }
} finally {
  await provider.shutdown();
}
