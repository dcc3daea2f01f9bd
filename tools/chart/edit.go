// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// where is the place of an edit's text relative to the lines of the value at its path.
type where int

const (
	replace where = iota
	before
	after
)

// edit puts template text into a manifest.
type edit struct {
	// path leads to a value from the document's top by keys and positions in lists, as a JSON pointer
	// without the first slash.
	path  string
	where where
	// text is the template text. Its lines are indented as the key, or the dash, at path.
	text string
}

// apply makes the edits in a manifest of one document. All other text stays, comments too.
func apply(manifest string, edits []edit) (string, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte(manifest), &doc); err != nil {
		return "", fmt.Errorf("read: %w", err)
	}
	if len(doc.Content) != 1 {
		return "", errors.New("no document")
	}
	lines := strings.Split(manifest, "\n")
	type change struct {
		before, after []string
		replaced      bool
		text          []string
	}
	changes := map[int]*change{}
	at := func(line int) *change {
		if changes[line] == nil {
			changes[line] = &change{}
		}
		return changes[line]
	}
	for _, e := range edits {
		s, err := find(doc.Content[0], strings.Split(e.path, "/"))
		if err != nil {
			return "", fmt.Errorf("%s: %w", e.path, err)
		}
		text := indented(e.text, s.indent)
		switch e.where {
		case before:
			at(s.first).before = append(at(s.first).before, text...)
		case after:
			at(s.last).after = append(at(s.last).after, text...)
		case replace:
			for line := s.first; line <= s.last; line++ {
				if at(line).replaced {
					return "", fmt.Errorf("%s: two edits replace line %d", e.path, line)
				}
				at(line).replaced = true
			}
			at(s.first).text = text
		}
	}
	var out []string
	for i, line := range lines {
		c := changes[i+1]
		if c == nil {
			out = append(out, line)
			continue
		}
		out = append(out, c.before...)
		if c.replaced {
			out = append(out, c.text...)
		} else {
			out = append(out, line)
		}
		out = append(out, c.after...)
	}
	return strings.Join(out, "\n"), nil
}

func indented(text string, indent int) []string {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	for i := range lines {
		lines[i] = strings.Repeat(" ", indent) + lines[i]
	}
	return lines
}

// span is the place of a value, from its key or dash to its end. Lines are numbered from 1.
type span struct{ first, last, indent int }

func find(n *yaml.Node, path []string) (span, error) {
	var s span
	for _, step := range path {
		step = strings.ReplaceAll(step, "~1", "/")
		switch n.Kind {
		case yaml.MappingNode:
			key, value := lookup(n, step)
			if key == nil {
				return span{}, errors.New("no field " + step)
			}
			s, n = span{first: key.Line, indent: key.Column - 1}, value
		case yaml.SequenceNode:
			i, err := strconv.Atoi(step)
			if step == last {
				i, err = len(n.Content)-1, nil
			}
			if err != nil || i < 0 || i >= len(n.Content) {
				return span{}, errors.New("no item " + step)
			}
			s, n = span{first: n.Content[i].Line, indent: n.Column - 1}, n.Content[i]
		default:
			return span{}, errors.New("nothing has a field " + step)
		}
	}
	if n.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0 {
		return span{}, errors.New("its lines cannot be counted")
	}
	s.last = max(s.first, end(n))
	return s, nil
}

// last stands for the last item of a list in a path.
const last = "-"

func lookup(n *yaml.Node, name string) (key, value *yaml.Node) {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			return n.Content[i], n.Content[i+1]
		}
	}
	return nil, nil
}

// end returns the last line of a value without block scalars.
func end(n *yaml.Node) int {
	line := n.Line
	for _, c := range n.Content {
		line = max(line, end(c))
	}
	return line
}
