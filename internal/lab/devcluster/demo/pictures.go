// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"fmt"
	"strings"
)

// LetterKey is the annotation with the letter of a pod in pictures.
const LetterKey = "demo.nvtopo.dev/letter"

// Pictures holds the output of a demo's scenes.
type Pictures struct {
	Text strings.Builder
	// Verdict is the statement that holds if there are no problems.
	Verdict  string
	problems []string
}

// Problems returns the promises that the demo broke, one line each.
func (p *Pictures) Problems() []string { return p.problems }

// Problem adds a problem.
func (p *Pictures) Problem(format string, args ...any) {
	p.problems = append(p.problems, fmt.Sprintf(format, args...))
}
