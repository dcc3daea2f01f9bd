// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"io/fs"
	"regexp"
	"strings"
	"testing"
)

// quotedReason is the first cell of a row about a reason that the scheduler gives for a node.
var quotedReason = regexp.MustCompile("(?m)^\\| (?:reason )?`((?:node\\(s\\)|fewer|no free) [^`]+)` \\|")

// TestTroubleshootingReasons: troubleshooting quotes reasons of the scheduler. A reader looks for
// the words of the message.
func TestTroubleshootingReasons(t *testing.T) {
	page, err := fs.ReadFile(repository(), "docs/troubleshooting.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := fs.ReadFile(repository(), "pkg/placement/reason.go")
	if err != nil {
		t.Fatal(err)
	}
	rows := quotedReason.FindAllStringSubmatch(string(page), -1)
	if len(rows) < 10 {
		t.Errorf("%d reasons are quoted, want 10 or more", len(rows))
	}
	for _, row := range rows {
		if !strings.Contains(string(source), `"`+row[1]+`"`) {
			t.Errorf("docs/troubleshooting.md quotes %q, which pkg/placement does not say", row[1])
		}
	}
}
