package protocol

import (
	"bytes"
	"encoding/json"
	"strings"
)

// This file walks JSON that json.Valid has accepted already. encoding/json itself matches names without
// regard to case and reads numbers into floats where it is not stopped; frames and events are small and
// frequent, so they are cut into raw members here and only the wanted ones are decoded.

// members calls each for every member of the object b, in order. It answers false if b is no object.
// b must be valid JSON; raw values alias it.
func members(b []byte, each func(name string, value json.RawMessage)) bool {
	i := space(b, 0)
	if i >= len(b) || b[i] != '{' {
		return false
	}
	for i = space(b, i+1); b[i] != '}'; i = space(b, i) {
		if b[i] == ',' {
			i = space(b, i+1)
		}
		end := stringEnd(b, i)
		name := text(b[i:end])
		i = space(b, space(b, end)+1) // past the colon
		end = valueEnd(b, i)
		each(name, b[i:end])
		i = end
	}
	return true
}

// elements calls each for every element of the array b until it answers false. It answers false itself
// if b is no array. b must be valid JSON.
func elements(b []byte, each func(value json.RawMessage) bool) bool {
	i := space(b, 0)
	if i >= len(b) || b[i] != '[' {
		return false
	}
	for i = space(b, i+1); b[i] != ']'; i = space(b, i) {
		if b[i] == ',' {
			i = space(b, i+1)
		}
		end := valueEnd(b, i)
		if !each(b[i:end]) {
			break
		}
		i = end
	}
	return true
}

func space(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\t' || b[i] == '\r' || b[i] == '\n') {
		i++
	}
	return i
}

// stringEnd is the index after the string that begins at i.
func stringEnd(b []byte, i int) int {
	for i++; b[i] != '"'; i++ {
		if b[i] == '\\' {
			i++
		}
	}
	return i + 1
}

// valueEnd is the index after the value that begins at i.
func valueEnd(b []byte, i int) int {
	switch b[i] {
	case '"':
		return stringEnd(b, i)
	case '{', '[':
		return nestedEnd(b, i)
	}
	for i < len(b) && !strings.ContainsRune(",]} \t\r\n", rune(b[i])) {
		i++
	}
	return i
}

func nestedEnd(b []byte, i int) int {
	for depth := 0; ; i++ {
		switch b[i] {
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
		case '"':
			i = stringEnd(b, i) - 1
		}
	}
}

// text decodes a JSON string; raw must be one.
func text(raw []byte) string {
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw[1 : len(raw)-1])
	}
	var s string
	_ = json.Unmarshal(raw, &s) // it has been found valid
	return s
}

func isString(raw json.RawMessage) bool { return len(raw) > 0 && raw[0] == '"' }
func isObject(raw json.RawMessage) bool { return len(raw) > 0 && raw[0] == '{' }
func isNull(raw json.RawMessage) bool   { return string(raw) == "null" }
