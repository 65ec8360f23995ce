// Runs AG-UI clients as its argument says, and prints each event and the end of each run as one line of JSON.
import { HttpAgent } from "@ag-ui/client";

const print = (value) => process.stdout.write(`${JSON.stringify(value)}\n`);
console.error = () => {};
console.warn = (...words) => print({ warning: words.join(" ") });

async function run({ name, url, threadId, runId, messages, resume, state }) {
  const agent = new HttpAgent({ url, threadId, initialMessages: messages, initialState: state });
  const subscriber = { onEvent: ({ event }) => print({ name, event }) };
  let error = null;
  try {
    await agent.runAgent({ runId, resume }, subscriber);
  } catch (caught) {
    error = { text: String(caught), status: caught.status ?? null, payload: caught.payload ?? null };
  }
  print({ name, end: { error, messages: agent.messages, state: agent.state, interrupts: agent.pendingInterrupts } });
}

await Promise.all(JSON.parse(process.argv[2]).map(run));
