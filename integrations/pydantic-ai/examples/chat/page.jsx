// A chat whose model writes programs. Each program is one card; the calls that it makes are cards inside it.
import { useChat } from "@ai-sdk/react";
import { DefaultChatTransport, lastAssistantMessageIsCompleteWithApprovalResponses } from "ai";
import { useEffect, useState } from "react";
import { createRoot } from "react-dom/client";

const KEPT = "chat";
const kept = JSON.parse(localStorage.getItem(KEPT)) ?? { id: crypto.randomUUID(), messages: [] };
const edits = {}; // by the id of a call, what somebody has put in the place of its input

const transport = new DefaultChatTransport({
  api: "/chat",
  prepareSendMessagesRequest: ({ id, messages, trigger, messageId }) => ({
    body: { id, messages, trigger, messageId, edits },
  }),
});

function Chat() {
  const chat = useChat({
    id: kept.id,
    messages: kept.messages,
    transport,
    sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithApprovalResponses,
  });
  const { id, messages, status, error } = chat;
  // What waits is in the messages, sealed: a page that is loaded again goes on with it.
  useEffect(() => {
    if (status === "ready") localStorage.setItem(KEPT, JSON.stringify({ id, messages }));
  }, [id, messages, status]);
  return (
    <main>
      <h1>A support desk</h1>
      {messages.map((message) => (
        <article key={message.id}>
          {message.parts.map((part, index) => (
            <Part key={index} part={part} parts={message.parts} chat={chat} />
          ))}
        </article>
      ))}
      {error && <p role="alert">{error.message}</p>}
      <Prompt onSend={(text) => chat.sendMessage({ text })} isBusy={status !== "ready"} />
    </main>
  );
}

function Part({ part, parts, chat }) {
  if (part.type === "text") return <p className="text">{part.text}</p>;
  if (part.type === "tool-codeMode") return <Program part={part} parts={parts} chat={chat} />;
  return null; // calls that wait are shown where their program is
}

function Program({ part, parts, chat }) {
  const calls = parts.filter((one) => one.type === "data-codemode.call" && one.data.outerToolCallId === part.toolCallId);
  return (
    <section className="program" aria-label="Program">
      <details>
        <summary>Program: {part.state === "output-available" ? "done" : part.state === "output-error" ? "failed" : "running"}</summary>
        <pre>{part.input?.js}</pre>
      </details>
      {calls.map(({ id, data }) => (
        <Call key={id} call={data} asked={parts.find((one) => one.toolCallId === data.waitsAs)} chat={chat} />
      ))}
    </section>
  );
}

function Call({ call, asked, chat }) {
  const isAsked = asked?.state === "approval-requested";
  return (
    <section className="call" aria-label={`${call.toolName}: ${isAsked ? "asks" : call.state}`}>
      <strong>{call.toolName}</strong> {isAsked ? "asks for your approval" : call.state}
      {isAsked ? <Approval asked={asked} chat={chat} /> : <pre>{JSON.stringify(call.input)}</pre>}
      {call.error && <p>{call.error}</p>}
    </section>
  );
}

function Approval({ asked, chat }) {
  const shown = JSON.stringify(asked.input);
  const [text, setText] = useState(shown);
  const answer = (approved, reason) => chat.addToolApprovalResponse({ id: asked.approval.id, approved, reason });
  const approve = () => {
    if (text !== shown) edits[asked.toolCallId] = JSON.parse(text);
    answer(true);
  };
  return (
    <form onSubmit={(event) => event.preventDefault()}>
      <textarea aria-label="Input" value={text} onChange={(event) => setText(event.target.value)} />
      <button onClick={approve}>Approve</button>
      <button onClick={() => answer(false, "the desk said no")}>Deny</button>
    </form>
  );
}

function Prompt({ onSend, isBusy }) {
  const [text, setText] = useState("");
  const send = (event) => {
    event.preventDefault();
    onSend(text);
    setText("");
  };
  return (
    <form onSubmit={send}>
      <input aria-label="Message" value={text} onChange={(event) => setText(event.target.value)} />
      <button disabled={isBusy || !text}>Send</button>
    </form>
  );
}

createRoot(document.getElementById("root")).render(<Chat />);
