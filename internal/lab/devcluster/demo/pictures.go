// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"fmt"
	"strings"
)

// LetterKey is the annotation with the letter of a pod in pictures.
const LetterKey = "demo.nvtopo.dev/letter"

// Pictures are what the scenes of a demo showed.
type Pictures struct {
	Text strings.Builder
	// Verdict is what is true if there are no problems.
	Verdict  string
	problems []string
}

// Problems prints the promises that the demo broke, one on each line.
func (p *Pictures) Problems() []string { return p.problems }

// Problem adds one.
func (p *Pictures) Problem(format string, args ...any) {
	p.problems = append(p.problems, fmt.Sprintf(format, args...))
}
