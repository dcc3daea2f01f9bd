// SPDX-License-Identifier: Apache-2.0

package smi

import (
	"fmt"
	"io"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// line is one line of input without escapes. Its bytes keep their original positions, so that errors
// refer to the text as the user sees it.
type line struct {
	no   int    // from 1
	text string // escapes removed, every blank but the tab turned into a space
	cols []int  // original column of each byte of text, and of its end
}

// column returns the original column of byte at, or of the end of the line.
func (l *line) column(at int) int {
	return l.cols[min(max(at, 0), len(l.cols)-1)]
}

// ansi matches colour and underline sequences. Terminals' copies often lose the
// escape byte itself and keep "[4m".
var ansi = regexp.MustCompile(`\x1b\[[0-9;?]*[A-Za-z]|\x1b[()][A-Z0-9]|\[[0-9]{1,2}(;[0-9]{1,3})*m|\[m`)

// readLines reads all of r, at most maxBytes.
func readLines(r io.Reader) ([]line, error) {
	raw, err := io.ReadAll(io.LimitReader(r, maxBytes+1))
	if err != nil {
		return nil, fmt.Errorf("reading topology text: %w", err)
	}
	if len(raw) > maxBytes {
		return nil, &SyntaxError{Line: 1, Column: 1, Msg: fmt.Sprintf("text is longer than %d bytes", maxBytes)}
	}
	text := strings.TrimSuffix(strings.TrimPrefix(string(raw), "\ufeff"), "\n")
	var out []line
	for s := range strings.SplitSeq(text, "\n") {
		out = append(out, cleanLine(len(out)+1, s))
	}
	return out, nil
}

func cleanLine(no int, s string) line {
	escapes := ansi.FindAllStringIndex(s, -1)
	var b strings.Builder
	cols := make([]int, 0, len(s)+1)
	end := len(strings.TrimRight(s, "\r"))
	for i := 0; i < end; {
		if len(escapes) > 0 && escapes[0][0] == i {
			i = escapes[0][1]
			escapes = escapes[1:]
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		if r != '\t' && unicode.IsSpace(r) {
			// Web pages turn blanks into no-break spaces.
			b.WriteByte(' ')
			cols = append(cols, i+1)
			i += size
			continue
		}
		for range size {
			b.WriteByte(s[i])
			cols = append(cols, i+1)
			i++
		}
	}
	return line{no: no, text: b.String(), cols: append(cols, end+1)}
}

// skipBlanks returns the first byte at or after at that is neither space nor tab.
func (l *line) skipBlanks(at int) int {
	for at < len(l.text) && (l.text[at] == ' ' || l.text[at] == '\t') {
		at++
	}
	return at
}

// word returns the run of non-blank bytes at or after at, and where it starts.
func (l *line) word(at int) (start int, word string) {
	start = l.skipBlanks(at)
	end := start
	for end < len(l.text) && l.text[end] != ' ' && l.text[end] != '\t' {
		end++
	}
	return start, l.text[start:end]
}

func (l *line) blank() bool { return l.skipBlanks(0) == len(l.text) }
