// Runs chats of the AI SDK as its argument says, and prints each change and the end of each chat as one line of JSON.
import { AbstractChat, DefaultChatTransport, lastAssistantMessageIsCompleteWithApprovalResponses } from "ai";

const print = (value) => process.stdout.write(`${JSON.stringify(value)}\n`);

class State {
  status = "ready";
  error = undefined;
  constructor(name, messages) {
    this.name = name;
    this.messages = messages;
  }
  show(message) {
    if (message.role === "assistant") print({ name: this.name, shown: message.parts });
  }
  pushMessage = (message) => {
    this.messages = [...this.messages, message];
    this.show(message);
  };
  popMessage = () => {
    this.messages = this.messages.slice(0, -1);
  };
  replaceMessage = (index, message) => {
    this.messages = this.messages.map((each, place) => (place === index ? structuredClone(message) : each));
    this.show(message);
  };
  snapshot = (value) => structuredClone(value);
}

class Chat extends AbstractChat {}

async function run({ name, api, id, messages = [], acts }) {
  const state = new State(name, messages);
  const chat = new Chat({
    id,
    state,
    transport: new DefaultChatTransport({ api }),
    sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithApprovalResponses,
    onData: (part) => print({ name, data: part }),
  });
  for (const act of acts) {
    if (act.send) await chat.sendMessage({ id: act.send.id, role: "user", parts: act.send.parts });
    if (act.resume) await chat.resumeStream();
    if (act.answer) {
      const { data } = chat.lastMessage.parts.find((part) => part.type === "data-question") ?? {};
      const question = chat.lastMessage.parts.find((part) => part.type === "data-question");
      print({ name, question: data });
      await chat.sendMessage(undefined, { body: { answers: [{ id: question.id, value: act.answer }] } });
    }
    if (act.decide) {
      const asked = chat.lastMessage.parts.filter((part) => part.state === "approval-requested");
      for (const [place, part] of asked.entries())
        await chat.addToolApprovalResponse({ id: part.approval.id, ...act.decide[place] });
      while (chat.status !== "ready" && chat.status !== "error") await new Promise((next) => setTimeout(next, 10));
    }
    print({ name, did: { status: chat.status, error: chat.error ? String(chat.error) : null, messages: chat.messages } });
  }
}

await Promise.all(JSON.parse(process.argv[2]).map(run));
