package embedded_test

import (
	"bufio"
	"net"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/lastmile-gateway/lastmile/internal/embedded"
	"github.com/lastmile-gateway/lastmile/internal/embedded/wire"
)

// rawClient sends commands as they stand, without a driver's ideas about them.
type rawClient struct {
	t    testing.TB
	conn net.Conn
	r    *bufio.Reader
	id   int32
}

func dialRaw(t testing.TB, server *embedded.Mongo) *rawClient {
	t.Helper()
	conn, err := net.Dial("tcp", server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return &rawClient{t: t, conn: conn, r: bufio.NewReader(conn)}
}

func (c *rawClient) send(command any) {
	c.t.Helper()
	body, err := bson.Marshal(command)
	if err != nil {
		c.t.Fatal(err)
	}
	c.id++
	if err := c.conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		c.t.Fatal(err)
	}
	if _, err := c.conn.Write(wire.AppendCommand(nil, c.id, body)); err != nil {
		c.t.Fatal(err)
	}
}

func (c *rawClient) receive() bson.Raw {
	c.t.Helper()
	msg, err := wire.Read(c.r)
	if err != nil {
		c.t.Fatalf("read reply: %v", err)
	}
	return msg.Body
}

func (c *rawClient) run(command any) bson.Raw {
	c.t.Helper()
	c.send(command)
	return c.receive()
}

// must runs a command that has to succeed, given as relaxed Extended JSON, on
// the database facts.
func (c *rawClient) must(command string) bson.Raw {
	c.t.Helper()
	reply := c.run(commandJSON(c.t, command))
	if reply.Lookup("ok").AsFloat64() != 1 || reply.Lookup("writeErrors").Type != 0 {
		c.t.Fatalf("%s: %s", command, reply)
	}
	return reply
}

func commandJSON(t testing.TB, command string) bson.D {
	t.Helper()
	var d bson.D
	if err := bson.UnmarshalExtJSON([]byte(command), false, &d); err != nil {
		t.Fatalf("%s: %v", command, err)
	}
	return append(d, bson.E{Key: "$db", Value: "facts"})
}
