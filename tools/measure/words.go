// SPDX-License-Identifier: Apache-2.0

package main

import (
	"go/scanner"
	"go/token"
	"path"
	"regexp"
	"strings"
)

// watched are words that plain prose about a program seldom needs.
var watched = []string{"what", "says", "nobody", "asks", "whoever", "anew"}

// Words are the number of words of a text, and the number of each watched word.
type Words struct {
	Total int
	Of    map[string]int
}

var word = regexp.MustCompile(`\pL+(['’]\pL+)?`)

func (w *Words) add(text string) {
	if w.Of == nil {
		w.Of = map[string]int{}
		for _, one := range watched {
			w.Of[one] = 0
		}
	}
	for _, one := range word.FindAllString(text, -1) {
		w.Total++
		one = strings.ToLower(one)
		if _, ok := w.Of[one]; ok {
			w.Of[one]++
		}
	}
}

// rate returns the occurrences of a word in 1,000 words.
func (w *Words) rate(one string) float64 {
	if w.Total == 0 {
		return 0
	}
	return 1000 * float64(w.Of[one]) / float64(w.Total)
}

// directive matches a comment for a program, //go:build, //nolint:x, +kubebuilder:x, or the license.
var directive = regexp.MustCompile(`^(//[a-z]+:|// ?\+|//nolint|// SPDX)`)

// comments returns the comments of a Go file that are for people.
func comments(code []byte) string {
	var text strings.Builder
	var s scanner.Scanner
	set := token.NewFileSet()
	s.Init(set.AddFile("", set.Base(), len(code)), code, nil, scanner.ScanComments)
	for {
		_, kind, literal := s.Scan()
		switch {
		case kind == token.EOF:
			return text.String()
		case kind == token.COMMENT && !directive.MatchString(literal):
			text.WriteString(strings.Trim(literal, "/*"))
			text.WriteByte('\n')
		}
	}
}

// isPage reports whether a file is a page written for people. The pages under docs/reference and
// docs/transcripts are generated, and a changelog describes the past.
func isPage(name string) bool {
	if path.Ext(name) != ".md" || strings.HasPrefix(name, "docs/reference/") || strings.HasPrefix(name, "docs/transcripts/") {
		return false
	}
	return name == "README.md" || name == "CONTRIBUTING.md" || strings.HasPrefix(name, "docs/")
}

// notProse matches the parts of a page that are no prose: blocks and spans of code, targets of links, and
// comments.
var notProse = regexp.MustCompile("(?ms)^ *```.*?^ *```|`[^`\n]*`|\\]\\([^)\n]*\\)|<!--.*?-->")

func prose(page string) string {
	return notProse.ReplaceAllString(page, " ")
}
