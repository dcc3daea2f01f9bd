// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
)

// kind is what a line of Markdown is part of.
type kind int

const (
	blank kind = iota
	prose
	heading
	table
	code // fenced or indented, or an HTML comment
)

// line is one line of a page.
type line struct {
	number int // from 1
	text   string
	kind   kind
}

var (
	listItem = regexp.MustCompile(`^ *([*+-]|[0-9]+[.)]) +`)
	codeSpan = regexp.MustCompile("`[^`]*`")
	// A link text may hold one pair of brackets; a target holds no blanks.
	link = regexp.MustCompile(`\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^()\s]+)\)`)
)

// parse tells the lines of a page apart.
func parse(page string) []line {
	var p parser
	lines := []line{}
	for i, text := range strings.Split(strings.TrimSuffix(page, "\n"), "\n") {
		l := line{number: i + 1, text: text, kind: p.kindOf(text)}
		if l.kind != blank || p.before != code {
			p.before = l.kind
		}
		lines = append(lines, l)
	}
	return lines
}

// parser is where in a page a line is.
type parser struct {
	fenced, comment bool
	content         int  // column at which the text of the last list item begins
	before          kind // of the line before; of code, blank lines are part
}

func (p *parser) kindOf(text string) kind {
	trimmed := strings.TrimSpace(text)
	switch {
	case p.hidden(text, trimmed):
		return code
	case trimmed == "":
		return blank
	case strings.HasPrefix(trimmed, "|"):
		return table
	case strings.HasPrefix(text, "#"):
		p.content = 0
		return heading
	}
	indent := len(text) - len(strings.TrimLeft(text, " "))
	if indent >= p.content+4 && p.before != prose {
		return code
	}
	if marker := listItem.FindString(text); marker != "" {
		p.content = len(marker)
	} else if indent == 0 && p.before != prose {
		p.content = 0
	}
	return prose
}

// hidden reports whether a line is part of fenced code or of a comment.
func (p *parser) hidden(text, trimmed string) bool {
	fence := strings.HasPrefix(trimmed, "```")
	switch {
	case p.fenced:
		p.fenced = !fence
	case fence:
		p.fenced = true
	case p.comment || strings.HasPrefix(trimmed, "<!--"):
		p.comment = !strings.Contains(text, "-->")
	default:
		return false
	}
	return true
}

// wordsOf are the words of a line without what begins a list item.
func wordsOf(text string) []string {
	return strings.Fields(strings.TrimPrefix(text, listItem.FindString(text)))
}

// targets are the targets of the links in a page, by the line that their block begins in.
func targets(lines []line) map[int][]string {
	out := map[int][]string{}
	begin, block := 0, ""
	end := func() {
		hidden := codeSpan.ReplaceAllStringFunc(block, func(s string) string { return strings.Repeat("x", len(s)) })
		for _, m := range link.FindAllStringSubmatch(hidden, -1) {
			out[begin] = append(out[begin], m[1])
		}
		block = ""
	}
	for _, l := range lines {
		if l.kind == prose && block != "" {
			block += "\n" + l.text
			continue
		}
		end()
		if l.kind != code && l.kind != blank {
			begin, block = l.number, l.text
		}
		if l.kind != prose {
			end()
		}
	}
	end()
	return out
}

// anchors are the fragments by which the headings of a page are linked to, as GitHub
// makes them.
func anchors(lines []line) map[string]bool {
	out := map[string]bool{}
	for _, l := range lines {
		if l.kind != heading {
			continue
		}
		name := slug(strings.TrimLeft(l.text, "# "))
		unique := name
		for n := 1; out[unique]; n++ {
			unique = fmt.Sprintf("%s-%d", name, n)
		}
		out[unique] = true
	}
	return out
}

func slug(title string) string {
	title = link.ReplaceAllStringFunc(title, func(s string) string { return s[:strings.LastIndex(s, "](")] })
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-', r == '_', unicode.IsLetter(r), unicode.IsDigit(r):
			return unicode.ToLower(r)
		}
		return -1
	}, strings.TrimSpace(title))
}
