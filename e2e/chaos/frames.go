package main

import "encoding/json"

// position is where a browser is in its user's log.
type position struct {
	Epoch string `json:"epoch"`
	Seq   int64  `json:"seq"`
	ID    string `json:"id"`
}

// delivery is one event of a frame.
type delivery struct {
	Seq         int64 `json:"seq"` // 0: ephemeral
	Redelivered bool  `json:"redelivered"`
	Event       struct {
		SpecVersion string          `json:"specversion"`
		ID          string          `json:"id"`
		Type        string          `json:"type"`
		Data        json.RawMessage `json:"data"`
	} `json:"event"`
}

// frame is any frame from the server, with the fields of those that matter here.
type frame struct {
	Type string `json:"type"`
	position
	N               int64      `json:"n"`
	User            string     `json:"user"`
	Instance        string     `json:"instance"`
	Recovered       bool       `json:"recovered"`
	PingInterval    int64      `json:"pingInterval"`    // ms
	ReconnectWithin int64      `json:"reconnectWithin"` // ms
	ReconnectAfter  int64      `json:"reconnectAfter"`  // ms
	Events          []delivery `json:"events"`
	Code            string     `json:"code"`
	Message         string     `json:"message"`
	Reason          string     `json:"reason"`
}
