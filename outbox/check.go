package outbox

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// minWireVersion is MongoDB 4.4's.
const minWireVersion = 9

// check says, in the words of an operator, why the server can't hold an outbox.
func check(ctx context.Context, client *mongo.Client, hosts []string) error {
	var hello struct {
		SetName        string `bson:"setName"`
		Msg            string `bson:"msg"`
		IsReplicaSet   bool   `bson:"isreplicaset"`
		MaxWireVersion int    `bson:"maxWireVersion"`
	}
	where := strings.Join(hosts, ", ")
	admin := client.Database("admin")
	err := admin.RunCommand(ctx, bson.D{{Key: "hello", Value: 1}}).Decode(&hello)
	if hasCode(err, codeCommandNotFound) { // before 4.4.2 it has its older name only
		err = admin.RunCommand(ctx, bson.D{{Key: "isMaster", Value: 1}}).Decode(&hello)
	}
	switch {
	case errors.Is(err, context.Canceled):
		return fmt.Errorf("open outbox: %w", err)
	case isTooOld(err), err == nil && hello.MaxWireVersion < minWireVersion:
		return fmt.Errorf("open outbox: %w: the server at %s is older than 4.4; upgrade it", ErrTooOld, where)
	case isAuthentication(err):
		return fmt.Errorf("open outbox: MongoDB at %s refuses the user or the password in the URL: %w", where, err)
	case err != nil:
		return fmt.Errorf("open outbox: %w at %s: is it running, and is that its address? (%w)", ErrUnreachable, where, err)
	case hello.SetName == "" && hello.IsReplicaSet:
		return fmt.Errorf("open outbox: %w yet: the server at %s waits for it; run rs.initiate() once in mongosh", ErrNotReplicaSet, where)
	case hello.SetName == "" && hello.Msg != "isdbgrid":
		return fmt.Errorf("open outbox: %w: the server at %s runs alone, without change streams and transactions; "+
			"start mongod with --replSet rs0 and run rs.initiate() once in mongosh", ErrNotReplicaSet, where)
	}
	return nil
}

// isTooOld finds what the driver itself refuses to talk to.
func isTooOld(err error) bool {
	return err != nil && strings.Contains(err.Error(), "wire version") // the driver has no type for it
}

func isAuthentication(err error) bool {
	var cmd mongo.CommandError
	if errors.As(err, &cmd) && (cmd.Code == codeAuthenticationFailed || cmd.Code == codeUnauthorized) {
		return true
	}
	return err != nil && strings.Contains(err.Error(), "auth error")
}

// withoutURL keeps a password out of the error: the driver's messages can quote what they couldn't read.
func withoutURL(err error, url string) error {
	text := err.Error()
	if _, rest, ok := strings.Cut(url, "://"); ok {
		if at := strings.LastIndexByte(rest, '@'); at >= 0 {
			for _, secret := range []string{rest[:at], rest[strings.IndexByte(rest[:at], ':')+1 : at]} {
				if secret != "" {
					text = strings.ReplaceAll(text, secret, "…")
				}
			}
		}
	}
	return errors.New(text)
}
