package chat

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/lastmile-gateway/lastmile/protocol"
)

const (
	maxText      = 10_000 // characters
	defaultLimit = 50
	maxLimit     = 200
	messageEvent = "chat.message"
)

// Message is a document of chat_messages, and the data of a chat.message event.
type Message struct {
	// Key is the sender and his id for the message: as _id it can be there once only.
	Key  string `json:"-" bson:"_id"`
	ID   string `json:"id" bson:"id"`
	Room string `json:"room" bson:"room"`
	From string `json:"from" bson:"from"`
	Name string `json:"name" bson:"name"`
	Text string `json:"text" bson:"text"`
	// Seq counts the room's messages from 1: the order that everybody sees.
	Seq       int64     `json:"seq" bson:"seq"`
	CreatedAt time.Time `json:"createdAt" bson:"createdAt"`
}

// errTaken ends a transaction whose message turned out to be stored already.
var errTaken = errors.New("message is stored")

func (s *Server) postMessage(w http.ResponseWriter, r *http.Request, u User) error {
	var body struct {
		ID   string `json:"id"`
		Text string `json:"text"`
	}
	if err := readJSON(r, &body); err != nil {
		return err
	}
	if err := checkMessage(body.ID, body.Text); err != nil {
		return err
	}
	m := Message{
		Key: u.ID + "/" + body.ID, ID: body.ID, Room: r.PathValue("room"),
		From: u.ID, Name: u.Name, Text: body.Text, CreatedAt: now(),
	}
	stored, created, err := s.store(r.Context(), m)
	if err != nil {
		return err
	}
	if stored.Room != m.Room || stored.Text != m.Text {
		return conflict("id: another message of yours has it")
	}
	status := http.StatusOK
	if created {
		status = http.StatusCreated
	}
	writeJSON(w, status, map[string]any{"message": stored})
	return nil
}

func checkMessage(id, text string) error {
	if parsed, err := uuid.Parse(id); err != nil || parsed.String() != id {
		return badRequest("id: want a UUID in lower case, with hyphens")
	}
	if strings.TrimSpace(text) == "" {
		return badRequest("text: empty")
	}
	if utf8.RuneCountInString(text) > maxText {
		return badRequest(fmt.Sprintf("text: more than %d characters", maxText))
	}
	return nil
}

// store is the heart of the example: the message, its place in the room and its event become real in one
// transaction. It answers what is stored under the message's key, and whether that is new.
func (s *Server) store(ctx context.Context, m Message) (stored Message, created bool, err error) {
	err = s.transaction(ctx, m.Room, func(ctx context.Context) error {
		switch err := s.messages.FindOne(ctx, bson.D{{Key: "_id", Value: m.Key}}).Decode(&stored); {
		case err == nil:
			return errTaken
		case !errors.Is(err, mongo.ErrNoDocuments):
			return err
		}
		stored, err = s.insert(ctx, m)
		return err
	})
	switch {
	case err == nil:
		return stored, true, nil
	case errors.Is(err, errTaken):
		return stored, false, nil
	case mongo.IsDuplicateKeyError(err):
		// The same message, sent twice at the same moment: the other one was first.
		err = s.messages.FindOne(ctx, bson.D{{Key: "_id", Value: m.Key}}).Decode(&stored)
		if err != nil {
			return Message{}, false, fmt.Errorf("read message: %w", err)
		}
		return stored, false, nil
	}
	return Message{}, false, fmt.Errorf("store message: %w", err)
}

// insert needs the context of a transaction.
func (s *Server) insert(ctx context.Context, m Message) (Message, error) {
	// Counting in the room's document also makes the transactions of one room follow each other, so the
	// order of the seqs is the order of the commits, which is the order of the events.
	var room Room
	err := s.rooms.FindOneAndUpdate(ctx, bson.D{{Key: "_id", Value: m.Room}},
		bson.D{{Key: "$inc", Value: bson.D{{Key: "seq", Value: int64(1)}}}},
		options.FindOneAndUpdate().SetReturnDocument(options.After)).Decode(&room)
	if errors.Is(err, mongo.ErrNoDocuments) {
		return m, notFound("no such room")
	}
	if err != nil {
		return m, err
	}
	to, err := s.recipients(ctx, m.Room)
	if err != nil {
		return m, err
	}
	if !slices.Contains(to, protocol.UserID(m.From)) {
		return m, forbidden("join the room first")
	}
	m.Seq = room.Seq
	if _, err := s.messages.InsertOne(ctx, m); err != nil {
		return m, err
	}
	return m, s.publish(ctx, messageEvent, m.Room, to, m)
}

// getMessages answers a page of the history, oldest first: the newest ones, or those before a seq.
func (s *Server) getMessages(w http.ResponseWriter, r *http.Request, u User) error {
	room := r.PathValue("room")
	before, err := queryInt(r, "before", 0)
	if err != nil {
		return err
	}
	limit, err := queryInt(r, "limit", defaultLimit)
	if err != nil {
		return err
	}
	limit = min(max(limit, 1), maxLimit)
	if err := s.mustBeMember(r.Context(), room, u); err != nil {
		return err
	}
	filter := bson.D{{Key: "room", Value: room}}
	if before > 0 {
		filter = append(filter, bson.E{Key: "seq", Value: bson.D{{Key: "$lt", Value: before}}})
	}
	messages, err := find[Message](r.Context(), s.messages, filter,
		options.Find().SetSort(bson.D{{Key: "seq", Value: -1}}).SetLimit(limit+1))
	if err != nil {
		return err
	}
	more := int64(len(messages)) > limit
	if more {
		messages = messages[:limit]
	}
	slices.Reverse(messages)
	writeJSON(w, http.StatusOK, map[string]any{"messages": messages, "more": more})
	return nil
}

func queryInt(r *http.Request, name string, absent int64) (int64, error) {
	value := r.URL.Query().Get(name)
	if value == "" {
		return absent, nil
	}
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil || n < 0 {
		return 0, badRequest(name + ": want a number")
	}
	return n, nil
}
