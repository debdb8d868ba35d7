package embedded

import (
	"bufio"
	"bytes"
	"regexp"

	"github.com/alicebob/miniredis/v2/server"
)

// An error of a command that a script calls begins on a server with that
// command's own code ("WRONGTYPE Operation against …"). miniredis puts it behind
// "ERR Error compiling script (new function): :1:", so that a client can't tell
// it. Scripts are therefore run for a second peer, whose reply is put right and
// handed on. Within MULTI, where EXEC gives the replies, errors stay as they are.

// innerPeer is the name of a second peer: of it the hook keeps away.
const innerPeer = "\x00script"

var scriptError = regexp.MustCompile(`^-ERR Error compiling script \(new function\): [^:]*:\d+: ([A-Z]+ .*?)\s*stack traceback:`)

// rightScriptErrors is miniredis' hook before each command; true means that the
// command is done.
func (r *Redis) rightScriptErrors(c *server.Peer, cmd string, args ...string) bool {
	switch cmd {
	case "EVAL", "EVALSHA", "EVAL_RO", "EVALSHA_RO":
	default:
		return false
	}
	if c.ClientName == innerPeer || c.Ctx == nil {
		return false
	}
	var reply bytes.Buffer
	inner := server.NewPeer(bufio.NewWriter(&reply))
	inner.Ctx, inner.Resp3, inner.ClientName = c.Ctx, c.Resp3, innerPeer
	r.server.Server().Dispatch(inner, append([]string{cmd}, args...))
	inner.Flush()
	c.WriteRaw(rightReply(reply.Bytes()))
	return true
}

func rightReply(reply []byte) string {
	if m := scriptError.FindSubmatch(reply); m != nil {
		return "-" + string(m[1]) + "\r\n"
	}
	return string(reply)
}
