package protocol_test

import (
	"errors"
	"fmt"

	"github.com/lastmile-gateway/lastmile/protocol"
)

// A publisher's request is refused as a whole, and every fault is named by where it is.
func ExampleDecodeEvents() {
	_, err := protocol.DecodeEvents([]byte(`[
		{"to": ["alice"], "type": "chat.message", "data": {"text": "hello"}},
		{"to": ["alice", ""], "type": "chat.message", "data": "hello"}
	]`))
	var bad *protocol.ValidationError
	if errors.As(err, &bad) {
		for _, f := range bad.Faults {
			fmt.Println(f.Pointer, f.Message)
		}
	}
	// Output:
	// /1/to/1 must not be empty
	// /1/data must be a JSON object
}

// A body is marshalled once; frames are spliced of it for each recipient.
func ExampleEventsFrame() {
	e, err := protocol.DecodeEvent([]byte(`{"id": "0192f0c1-2b3c-7d4e-8f50-123456789abc", "to": ["alice", "bob"], "type": "greeting", "data": {"text": "hello"}}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	e.Time = testTime
	e.Prepare()
	v, err := protocol.NewEnvelope(e)
	if err != nil {
		fmt.Println(err)
		return
	}
	var alice, bob protocol.EventsFrame
	alice.Add(17, false, v.Body)
	bob.Add(3, true, v.Body)
	fmt.Printf("%s\n%s\n", alice.Bytes(), bob.Bytes())
	// Output:
	// {"type":"events","events":[{"seq":17,"event":{"specversion":"1.0","id":"0192f0c1-2b3c-7d4e-8f50-123456789abc","source":"lastmile","type":"greeting","time":"2026-03-04T04:06:07.089Z","data":{"text":"hello"}}}]}
	// {"type":"events","events":[{"seq":3,"redelivered":true,"event":{"specversion":"1.0","id":"0192f0c1-2b3c-7d4e-8f50-123456789abc","source":"lastmile","type":"greeting","time":"2026-03-04T04:06:07.089Z","data":{"text":"hello"}}}]}
}

// Whoever keeps an order of his own across languages computes the partition as this package does.
func ExampleEvent_PartitionHash() {
	e := &protocol.Event{Key: "foobar"}
	fmt.Printf("%#x %d\n", e.PartitionHash(), protocol.Partition(e.PartitionHash(), 4))
	// Output: 0x5fce7cb4 0
}
