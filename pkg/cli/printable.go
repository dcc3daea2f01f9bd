// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode"
)

// Texts of a cluster, a machine or a file may be written by a hostile node, tenant or process. A terminal
// acts upon control characters in them, and a line break forges a row of a table. So each text for people
// is written by printf, or by the rows of a table, which replace these characters.

// safe is a text that is printed unchanged: it has been through printable, or is the program's own. It may
// have colours.
type safe string

// printable replaces by a mark the characters that a terminal would act upon, line breaks and invisible
// characters.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, s)
}

// printed returns a value as printable text.
func printed(value any) string {
	switch v := value.(type) {
	case safe:
		return string(v)
	case string:
		return printable(v)
	}
	return printable(fmt.Sprint(value))
}

// cleaned is a value that is formatted as usual and then made printable.
type cleaned struct{ value any }

func (c cleaned) Format(f fmt.State, verb rune) {
	_, _ = io.WriteString(f, printable(fmt.Sprintf(fmt.FormatString(f, verb), c.value))) // a buffer of fmt takes all
}

// printf writes a text for people. The format is the program's own, and may have lines and tabs; the
// arguments are printed without any.
func printf(w io.Writer, format string, args ...any) {
	for i, arg := range args {
		switch a := arg.(type) {
		case safe:
			args[i] = string(a)
		case nil, bool, int, int32, int64, float64: // the width of a column may be among them
		default:
			args[i] = cleaned{arg}
		}
	}
	fmt.Fprintf(w, format, args...)
}

// printableLines is printable for a text of several lines.
func printableLines(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, s)
}

// writeLines passes on the output of write, without the characters that a terminal would act upon.
func writeLines(w io.Writer, write func(io.Writer) error) error {
	var b strings.Builder
	if err := write(&b); err != nil {
		return err
	}
	_, err := io.WriteString(w, printableLines(b.String()))
	return err
}

// ErrorText returns the text of an error without the characters that a terminal would act upon.
func ErrorText(err error) string { return printableLines(err.Error()) }

// encodeJSON writes a value as JSON; indent is the indentation of each level.
func encodeJSON(w io.Writer, indent string, value any) error {
	e := json.NewEncoder(&jsonWriter{out: w})
	e.SetIndent("", indent)
	return e.Encode(value)
}

// jsonWriter writes JSON with escapes in place of the control characters that JSON permits: DEL, and those
// that are 0xc2 and another byte in UTF-8. They are in strings only.
type jsonWriter struct {
	out  io.Writer
	held bool // 0xc2 has been read, and is not written yet
}

func (j *jsonWriter) Write(p []byte) (int, error) {
	out := make([]byte, 0, len(p)+1)
	for _, b := range p {
		control := b == 0x7f || j.held && b >= 0x80 && b <= 0x9f
		if j.held && !control {
			out = append(out, 0xc2)
		}
		j.held = b == 0xc2
		switch {
		case control:
			out = fmt.Appendf(out, `\u%04x`, b)
		case !j.held:
			out = append(out, b)
		}
	}
	if _, err := j.out.Write(out); err != nil {
		return 0, err
	}
	return len(p), nil
}
