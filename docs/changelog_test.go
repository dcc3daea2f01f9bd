// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"k8s.io/apimachinery/pkg/util/version"
)

// The changelog has the form of Keep a Changelog, so that tools and make release-check
// find the entries of a version.
func TestChangelog(t *testing.T) {
	text, err := os.ReadFile("../CHANGELOG.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, fault := range changelogFaults(string(text)) {
		t.Error("CHANGELOG.md:", fault)
	}
}

// TestChangelogFaults: faults of the changelog are found.
func TestChangelogFaults(t *testing.T) {
	const unreleased = "# Changelog\n\nFor users.\n\n## [Unreleased]\n"
	tests := map[string]struct {
		text string
		want []string
	}{
		"two releases, the latest first": {
			text: unreleased + "\n### Added\n\n- It.\n\n## [0.2.0] - 2026-12-01\n\n### Fixed\n\n- It.\n\n## [0.1.0] - 2026-11-30\n\n### Added\n\n- It.\n",
		},
		"no section for what is to come": {
			text: "# Changelog\n\n## [0.1.0] - 2026-11-30\n\n### Added\n\n- It.\n",
			want: []string{"the first section is not [Unreleased]"},
		},
		"a release without a date, and one that is no version": {
			text: unreleased + "\n## [0.2.0]\n\n### Added\n\n- It.\n\n## [first] - 2026-11-30\n\n### Added\n\n- It.\n",
			want: []string{"7: not [VERSION] - YYYY-MM-DD: [0.2.0]", "13: not [VERSION] - YYYY-MM-DD: [first] - 2026-11-30"},
		},
		"an earlier release above a later one": {
			text: unreleased + "\n## [0.9.0] - 2026-11-30\n\n### Added\n\n- It.\n\n## [0.10.0] - 2026-12-01\n\n### Added\n\n- It.\n",
			want: []string{"13: 0.10.0 is below 0.9.0"},
		},
		"a kind of change that tools do not know": {
			text: unreleased + "\n### New\n\n- It.\n",
			want: []string{"5: no kind of change: New"},
		},
		"a release that changes nothing": {
			text: unreleased + "\n## [0.1.0] - 2026-11-30\n",
			want: []string{"7: no entry"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, changelogFaults(tc.text)); diff != "" {
				t.Errorf("(-want,+got)\n%s", diff)
			}
		})
	}
}

var releaseHeading = regexp.MustCompile(`^\[([0-9]+\.[0-9]+\.[0-9]+(?:-[0-9A-Za-z.-]+)?)\] - [0-9]{4}-[0-9]{2}-[0-9]{2}$`)

var kindsOfChange = []string{"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}

// section is what a changelog says of one release, or of what is to come.
type section struct {
	heading string
	line    int
	kinds   []string
	entries int
}

func sectionsOf(changelog string) []section {
	sections := []section{{}} // what is above the first heading
	for _, l := range parse(changelog) {
		current := &sections[len(sections)-1]
		switch mark, text, _ := strings.Cut(l.text, " "); mark {
		case "##":
			sections = append(sections, section{heading: text, line: l.number})
		case "###":
			current.kinds = append(current.kinds, text)
		case "-":
			current.entries++
		}
	}
	return sections[1:]
}

// changelogFaults are the deviations of a changelog from the form.
func changelogFaults(changelog string) []string {
	var faults []string
	sections := sectionsOf(changelog)
	if len(sections) == 0 || sections[0].heading != "[Unreleased]" {
		faults = append(faults, "the first section is not [Unreleased]")
	}
	var above *version.Version
	for _, s := range sections {
		fault := func(format string, args ...any) {
			faults = append(faults, fmt.Sprintf("%d: ", s.line)+fmt.Sprintf(format, args...))
		}
		for _, kind := range s.kinds {
			if !slices.Contains(kindsOfChange, kind) {
				fault("no kind of change: %s", kind)
			}
		}
		if s.heading == "[Unreleased]" {
			continue
		}
		m := releaseHeading.FindStringSubmatch(s.heading)
		if m == nil {
			fault("not [VERSION] - YYYY-MM-DD: %s", s.heading)
			continue
		}
		if s.entries == 0 {
			fault("no entry")
		}
		v, err := version.ParseSemantic(m[1])
		switch {
		case err != nil:
			fault("%v", err)
			continue
		case above != nil && !v.LessThan(above):
			fault("%s is below %s", v, above)
		}
		above = v
	}
	return faults
}
