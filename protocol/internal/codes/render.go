package codes

import (
	"bytes"
	"fmt"
	"go/format"
	"strings"
	"unicode"
)

// File is one generated file.
type File struct {
	Path    string // from the repository's root, with slashes
	Content []byte
}

// Files renders the table in its three forms.
func Files() ([]File, error) {
	src, err := format.Source(renderGo())
	if err != nil {
		return nil, fmt.Errorf("format generated code: %w", err)
	}
	return []File{
		{"protocol/codes_gen.go", src},
		{"web/client/codes.js", renderJS()},
		{"docs/protocol-codes.md", renderDocs()},
	}, nil
}

const marker = "Code generated from the table of package protocol; DO NOT EDIT."

func renderGo() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "// %s\n\npackage protocol\n\n", marker)
	b.WriteString("// WebSocket close codes. 4000 to 4499: reconnect. 4500 to 4999: don't.\nconst (\n")
	for _, c := range Closes {
		fmt.Fprintf(&b, "\t// Close%s: %s\n\tClose%s CloseCode = %d\n", c.Name, c.Doc, c.Name, c.Code)
	}
	b.WriteString(")\n\n// Codes of the error frame.\nconst (\n")
	for _, e := range Errors {
		fmt.Fprintf(&b, "\t// Error%s: %s\n\tError%s ErrorCode = %q\n", e.Name, e.Doc, e.Name, e.Code)
	}
	b.WriteString(")\n\nvar closeCodes = map[CloseCode]closeInfo{\n")
	for _, c := range Closes {
		fmt.Fprintf(&b, "\tClose%s: {%q, %t},\n", c.Name, c.Reason, c.Reconnect)
	}
	b.WriteString("}\n")
	return b.Bytes()
}

func renderJS() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "// %s\n\n", marker)
	b.WriteString("/** WebSocket close codes. 4000 to 4499: reconnect. 4500 to 4999: don't. */\nexport const CloseCode = Object.freeze({\n")
	for _, c := range Closes {
		fmt.Fprintf(&b, "  %s: %d,\n", upperSnake(c.Name), c.Code)
	}
	b.WriteString("});\n\n/** Codes of the `error` frame. */\nexport const ErrorCode = Object.freeze({\n")
	for _, e := range Errors {
		fmt.Fprintf(&b, "  %s: %q,\n", strings.ToUpper(e.Code), e.Code)
	}
	b.WriteString("});\n")
	return b.Bytes()
}

func renderDocs() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "<!-- %s -->\n\n# Close codes and error codes\n\n", marker)
	b.WriteString("## Close codes\n\n| code | reason | client reconnects | |\n| --- | --- | --- | --- |\n")
	for _, c := range Closes {
		fmt.Fprintf(&b, "| %d | %s | %s | %s |\n", c.Code, c.Reason, yes(c.Reconnect), c.Doc)
	}
	b.WriteString("\nOf codes that are not here, 4500 to 4999 mean: don't reconnect; all others: do.\n")
	b.WriteString("\n## Codes of the `error` frame\n\n| code | try again | |\n| --- | --- | --- |\n")
	for _, e := range Errors {
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", e.Code, yes(e.Again), e.Doc)
	}
	return b.Bytes()
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// upperSnake turns SlowConsumer into SLOW_CONSUMER, and NotUTF8 into NOT_UTF8.
func upperSnake(name string) string {
	var b strings.Builder
	runes := []rune(name)
	for i, r := range runes {
		if i > 0 && unicode.IsUpper(r) && unicode.IsLower(runes[i-1]) {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToUpper(r))
	}
	return b.String()
}
