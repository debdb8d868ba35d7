// Package chat is the example application: a chat of rooms whose messages reach the browser through
// lastmile. It shows what an application does, and that it is little:
//
//   - It writes its own data and the outbox event in one transaction ([outbox.Publish] with the
//     transaction's context), so that both are there or neither is: see messages.go.
//   - It mints a short-lived token for the socket: see token.go.
//   - Its page loads on `resync` and follows `event`: see page/chat.js.
//
// # What it owns
//
// The collections chat_users, chat_rooms, chat_members, chat_messages, and the event types chat.message
// (data: a [Message]), chat.member (a [Member]) and chat.room (a [Room]), with the subject "room:<id>".
//
// # What it promises
//
// A message is stored once per sender and client's id, however often and from wherever it is sent; the
// same id with another text or room is a conflict. Its seq counts the messages of its room without a gap,
// and is the order that everybody sees. A message that is stored has its event; one that failed has none.
// The history answers with everything that was committed before it was asked.
//
// It does not promise secrecy: whoever knows a name may use it, there are no passwords. Names that differ
// in case only are one user.
//
// # At failures
//
//   - MongoDB away: 503, the page keeps the message and offers to send it again, under its id.
//   - The answer to a message is lost: sent again, the first one is answered.
//   - Two senders at the same moment: one transaction is run again by the driver.
//   - The process dies in a transaction: MongoDB aborts it.
//
// # Testing against it
//
// [New] takes any database and makes what it needs; the handler needs no listener.
package chat
