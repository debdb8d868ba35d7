package chat

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// Lobby is the room that everybody is in.
const Lobby = "lobby"

const (
	memberEvent = "chat.member"
	roomEvent   = "chat.room"
)

// Room is a document of chat_rooms, and the data of a chat.room event.
type Room struct {
	ID    string `json:"id" bson:"_id"`
	Title string `json:"title" bson:"title"`
	// Seq is that of the room's last message.
	Seq       int64     `json:"seq" bson:"seq"`
	Members   int64     `json:"members" bson:"members"`
	CreatedAt time.Time `json:"createdAt" bson:"createdAt"`
}

// Member is a document of chat_members, and the data of a chat.member event.
type Member struct {
	Room     string    `json:"room" bson:"room"`
	User     string    `json:"user" bson:"user"`
	Name     string    `json:"name" bson:"name"`
	JoinedAt time.Time `json:"joinedAt" bson:"joinedAt"`
	// Members is how many the room has with him; in the event only.
	Members int64 `json:"members,omitempty" bson:"-"`
}

func (s *Server) getRooms(w http.ResponseWriter, r *http.Request, u User) error {
	rooms, err := find[Room](r.Context(), s.rooms, bson.D{}, options.Find().SetSort(bson.D{{Key: "createdAt", Value: 1}}))
	if err != nil {
		return err
	}
	mine, err := find[Member](r.Context(), s.members, bson.D{{Key: "user", Value: u.ID}})
	if err != nil {
		return err
	}
	in := map[string]bool{}
	for _, m := range mine {
		in[m.Room] = true
	}
	type listed struct {
		Room
		Member bool `json:"member"`
	}
	list := make([]listed, len(rooms))
	for i, room := range rooms {
		list[i] = listed{room, in[room.ID]}
	}
	writeJSON(w, http.StatusOK, map[string]any{"rooms": list})
	return nil
}

// postRoom makes a room, with its maker as first member, and tells everybody in the lobby.
func (s *Server) postRoom(w http.ResponseWriter, r *http.Request, u User) error {
	var body struct {
		Title string `json:"title"`
	}
	if err := readJSON(r, &body); err != nil {
		return err
	}
	title, err := cleanName(body.Title)
	if err != nil {
		return badRequest("title: 1 to 64 characters, no control characters")
	}
	room := Room{ID: slug(title), Title: title, CreatedAt: now()}
	err = s.transaction(r.Context(), room.ID, func(ctx context.Context) error {
		if _, err := s.rooms.InsertOne(ctx, room); err != nil {
			return err
		}
		to, err := s.recipients(ctx, Lobby)
		if err != nil {
			return err
		}
		if err := s.publish(ctx, roomEvent, room.ID, to, room); err != nil {
			return err
		}
		return s.addMember(ctx, Member{Room: room.ID, User: u.ID, Name: u.Name, JoinedAt: now()})
	})
	if mongo.IsDuplicateKeyError(err) {
		return conflict("title: there is such a room")
	}
	if err != nil {
		return fmt.Errorf("make room: %w", err)
	}
	room.Members = 1
	writeJSON(w, http.StatusCreated, map[string]any{"room": room})
	return nil
}

func (s *Server) postJoin(w http.ResponseWriter, r *http.Request, u User) error {
	member, err := s.join(r.Context(), r.PathValue("room"), u)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, map[string]any{"member": member})
	return nil
}

// join makes the user a member and tells the room, him included; once, however often it is called.
func (s *Server) join(ctx context.Context, room string, u User) (Member, error) {
	member := Member{Room: room, User: u.ID, Name: u.Name, JoinedAt: now()}
	err := s.transaction(ctx, room, func(ctx context.Context) error {
		err := s.members.FindOne(ctx, byMember(room, u.ID)).Decode(&member)
		if !errors.Is(err, mongo.ErrNoDocuments) {
			return err
		}
		return s.addMember(ctx, member)
	})
	if mongo.IsDuplicateKeyError(err) {
		// He joined from another tab at the same moment.
		err = s.members.FindOne(ctx, byMember(room, u.ID)).Decode(&member)
	}
	if err != nil {
		return Member{}, fmt.Errorf("join %s: %w", room, err)
	}
	return member, nil
}

// addMember needs the context of a transaction. Counting in the room's document is what makes it and a
// message at the same moment follow each other: the message goes to the new member, or it is in the
// history that he loads next.
func (s *Server) addMember(ctx context.Context, m Member) error {
	var room Room
	err := s.rooms.FindOneAndUpdate(ctx, bson.D{{Key: "_id", Value: m.Room}},
		bson.D{{Key: "$inc", Value: bson.D{{Key: "members", Value: int64(1)}}}},
		options.FindOneAndUpdate().SetReturnDocument(options.After)).Decode(&room)
	if errors.Is(err, mongo.ErrNoDocuments) {
		return notFound("no such room")
	}
	if err != nil {
		return err
	}
	if _, err := s.members.InsertOne(ctx, m); err != nil {
		return err
	}
	to, err := s.recipients(ctx, m.Room)
	if err != nil {
		return err
	}
	m.Members = room.Members
	return s.publish(ctx, memberEvent, m.Room, to, m)
}

func (s *Server) getMembers(w http.ResponseWriter, r *http.Request, u User) error {
	room := r.PathValue("room")
	if err := s.mustBeMember(r.Context(), room, u); err != nil {
		return err
	}
	members, err := find[Member](r.Context(), s.members, bson.D{{Key: "room", Value: room}},
		options.Find().SetSort(bson.D{{Key: "joinedAt", Value: 1}}))
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, map[string]any{"members": members})
	return nil
}

func (s *Server) mustBeMember(ctx context.Context, room string, u User) error {
	err := s.members.FindOne(ctx, byMember(room, u.ID)).Err()
	if errors.Is(err, mongo.ErrNoDocuments) {
		return forbidden("join the room first")
	}
	return err
}

func byMember(room, user string) bson.D {
	return bson.D{{Key: "room", Value: room}, {Key: "user", Value: user}}
}
