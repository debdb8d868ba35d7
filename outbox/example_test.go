package outbox_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/lastmile-gateway/lastmile/internal/embedded"
	"github.com/lastmile-gateway/lastmile/outbox"
	"github.com/lastmile-gateway/lastmile/protocol"
)

// An application stores its message and the event about it in one transaction: both are there, or neither.
func ExamplePublish() {
	ctx := context.Background()
	url, stop := exampleServer(ctx)
	defer stop()

	client, err := mongo.Connect(options.Client().ApplyURI(url))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Disconnect(ctx)
	db := client.Database("lastmile")
	session, err := client.StartSession()
	if err != nil {
		log.Fatal(err)
	}
	defer session.EndSession(ctx)

	event := protocol.Event{
		ID: protocol.NewEventID(), // chosen before the transaction: should it be repeated, it is the same event
		To: []protocol.UserID{"alice", "bob"}, Type: "chat.message", Subject: "room:42",
		Data: json.RawMessage(`{"text": "hello"}`),
	}
	_, err = session.WithTransaction(ctx, func(ctx context.Context) (any, error) {
		if _, err := db.Collection("messages").InsertOne(ctx, bson.D{{Key: "text", Value: "hello"}}); err != nil {
			return nil, err
		}
		return nil, outbox.Publish(ctx, db.Collection(outbox.DefaultCollection), event)
	})
	n, _ := db.Collection(outbox.DefaultCollection).CountDocuments(ctx, bson.D{})
	fmt.Println(err, n)
	// Output: <nil> 1
}

// Reading the outbox: open a stream, and go on with what it answers until the context ends.
func ExampleStore_Watch() {
	ctx := context.Background()
	url, stop := exampleServer(ctx)
	defer stop()
	store, err := outbox.Open(ctx, url, outbox.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close(ctx)
	if err := store.Prepare(ctx); err != nil {
		log.Fatal(err)
	}
	stream, err := store.Watch(ctx, outbox.WatchOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer stream.Close(ctx)

	err = store.Publish(ctx, &protocol.Event{To: []protocol.UserID{"alice"}, Type: "greeting", Data: json.RawMessage(`{"n":1}`)})
	if err != nil {
		log.Fatal(err)
	}
	for seen := 0; seen == 0; {
		changes, err := stream.Next(ctx)
		if err != nil {
			log.Fatal(err)
		}
		for _, c := range changes {
			fmt.Println(c.Event.To, c.Event.Type, string(c.Event.Data))
			seen++
		}
	}
	// Output: [alice] greeting {"n":1}
}

func exampleServer(ctx context.Context) (url string, stop func()) {
	server, err := embedded.NewMongo(embedded.MongoConfig{})
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	return server.URL(), func() {
		cancel()
		<-done
	}
}
