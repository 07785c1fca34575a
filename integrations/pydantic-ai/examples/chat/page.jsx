// A chat whose model writes programs. Each program is one card; the calls that it makes are cards inside it.
import { useChat } from "@ai-sdk/react";
import { DefaultChatTransport, lastAssistantMessageIsCompleteWithApprovalResponses } from "ai";
import { useEffect, useState } from "react";
import { createRoot } from "react-dom/client";

const KEPT = "chat";
const kept = JSON.parse(localStorage.getItem(KEPT)) ?? { id: crypto.randomUUID(), messages: [] };
// By the id of a call, what somebody has put in the place of its input: as lasting as the approval that it belongs to.
const edits = kept.edits ?? {};

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
    if (status === "ready") localStorage.setItem(KEPT, JSON.stringify({ id, messages, edits }));
  }, [id, messages, status]);
  return (
    <main>
      <h1>A support desk</h1>
      {messages.map((message) => (
        <article key={message.id} className={message.role}>
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
  const state = { "output-available": "done", "output-error": "failed" }[part.state] ?? "running";
  return (
    <section className="program" aria-label="Program">
      <details open={state === "running"}>
        <summary>Program: {state}</summary>
        <pre>{part.input?.js?.trim()}</pre>
      </details>
      {calls.map(({ id, data }) => (
        <Call key={id} call={data} asked={parts.find((one) => one.toolCallId === data.waitsAs)} chat={chat} />
      ))}
    </section>
  );
}

function Call({ call, asked, chat }) {
  const isAsked = asked?.state === "approval-requested";
  const isAnswered = asked?.state === "approval-responded" && call.state === "waiting";
  const answered = asked?.approval?.approved ? "approved" : "to be denied"; // it goes on when all is answered
  const state = isAsked ? "asks" : isAnswered ? answered : call.state;
  const input = isAnswered ? (edits[asked.toolCallId] ?? call.input) : call.input;
  return (
    <section className={`call ${state}`} aria-label={`${call.toolName}: ${state}`}>
      <strong>{call.toolName}</strong> {isAsked ? "asks for your approval" : state}
      {isAsked ? <Approval asked={asked} chat={chat} /> : <pre>{JSON.stringify(input)}</pre>}
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
      <textarea aria-label="Input" rows="1" value={text} onChange={(event) => setText(event.target.value)} />
      <button className="main" onClick={approve}>Approve</button>
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
    <form className="prompt" onSubmit={send}>
      <input aria-label="Message" placeholder="Ask the desk" value={text} onChange={(event) => setText(event.target.value)} />
      <button className="main" disabled={isBusy || !text}>Send</button>
    </form>
  );
}

createRoot(document.getElementById("root")).render(<Chat />);
