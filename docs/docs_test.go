// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

// width is the most characters that a line of prose has. Tables, code and a line that
// is one word, such as a long link, may have more.
const width = 100

// TestLinkTargets: links lead somewhere.
func TestLinkTargets(t *testing.T) { none(t, repository(), brokenLinks) }

// TestPageLinks: every page is linked to.
func TestPageLinks(t *testing.T) { none(t, repository(), orphans) }

// TestProseWrapping: prose is wrapped.
func TestProseWrapping(t *testing.T) { none(t, repository(), longLines) }

// TestFencePlacement: fences begin their line.
func TestFencePlacement(t *testing.T) { none(t, repository(), brokenFences) }

// TestPageOpenings: pages begin with what they are for.
func TestPageOpenings(t *testing.T) { none(t, repository(), bareBeginnings) }

// TestOutsideReferences: other files name pages that exist. Comments, manifests and scripts name
// pages and headings by docs/PAGE.md#HEADING.
func TestOutsideReferences(t *testing.T) { none(t, repository(), brokenMentions) }

// TestFaultDetection: faults are found.
func TestFaultDetection(t *testing.T) {
	long := strings.Repeat("word ", 20) + "words"
	good := "# Good\n\nFor nobody.\n\n## Twice `over`\n\n## Twice over\n"
	for name, tc := range map[string]struct {
		check func(fs.FS) ([]string, error)
		page  string
		want  []string
	}{
		"a link to a page, to its headings, to its own": {
			brokenLinks, "# A\n\n[one](good.md), [two](good.md#twice-over-1),\n[three\nfour](#a) and [five](https://example.org)\n", nil,
		},
		"a link to a page that is not there": {brokenLinks, "# A\n\nSee\n[this](gone.md).\n", []string{"docs/a.md:3: no file gone.md"}},
		"a link to a heading that is not there": {
			brokenLinks, "# A\n\n| [this](good.md#thrice) |\n", []string{"docs/a.md:3: no heading good.md#thrice"},
		},
		"links in code": {brokenLinks, "# A\n\n```\n[this](gone.md)\n```\n\n`[this](gone.md)`\n", nil},
		"a page that only links to itself": {
			orphans, "# A\n\n[itself](a.md), [another](good.md#good)\n", []string{"docs/a.md: no page links to it"},
		},
		"a long line":                {longLines, "# A\n\n" + long + "\n", []string{"docs/a.md:3: 105 characters"}},
		"a long line of a list item": {longLines, "# A\n\n* a\n  " + long + "\n", []string{"docs/a.md:4: 107 characters"}},
		"long lines that are no prose, and a long word": {
			longLines, "# " + long + "\n\n| " + long + " |\n\n```\n" + long + "\n```\n\n    " + long + "\n\n* [a](" + strings.Repeat("b", 120) + ")\n", nil,
		},
		"a fence that was wrapped": {brokenFences, "# A\n\n* run: ``` make\n  it ```\n", []string{"docs/a.md:3: a fence within prose", "docs/a.md:4: a fence within prose"}},
		"a page without a title":   {bareBeginnings, "Some words.\n", []string{"docs/a.md: begins without a title"}},
		"a title and then a heading": {
			bareBeginnings, "# A\n\n## B\n", []string{"docs/a.md: does not begin with what it is for"},
		},
		"a file that names a page": {brokenMentions, "# A\n\nFor nobody.\n", []string{"x.go: no heading docs/good.md#thrice", "x.go: no file docs/gone.md"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := tc.check(fstest.MapFS{
				"docs/a.md": {Data: []byte(tc.page)}, "docs/good.md": {Data: []byte(good)},
				"x.go": {Data: []byte("// See docs/good.md, docs/good.md#good, docs/good.md#thrice\n// and docs/gone.md.\n")},
			})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want,+got)\n%s", diff)
			}
		})
	}
}

func repository() fs.FS { return os.DirFS("..") }

func none(t *testing.T, repo fs.FS, check func(fs.FS) ([]string, error)) {
	t.Helper()
	faults, err := check(repo)
	if err != nil {
		t.Fatal(err)
	}
	for _, fault := range faults {
		t.Error(fault)
	}
}

func brokenLinks(repo fs.FS) ([]string, error) {
	return eachPage(repo, func(name string, lines []line) (faults []string) {
		all := targets(lines)
		for _, l := range lines {
			for _, target := range all[l.number] {
				if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
					continue
				}
				file, fragment, _ := strings.Cut(target, "#")
				to := name
				if file != "" {
					to = path.Join(path.Dir(name), file)
				}
				if what := missing(repo, to, fragment); what != "" {
					faults = append(faults, fmt.Sprintf("%s:%d: no %s %s", name, l.number, what, target))
				}
			}
		}
		return faults
	})
}

// orphans are pages under docs that no other page links to.
func orphans(repo fs.FS) ([]string, error) {
	linked, pages := map[string]bool{}, []string{}
	_, err := eachPage(repo, func(name string, lines []line) []string {
		if path.Dir(name) != "." {
			pages = append(pages, name)
		}
		for _, block := range targets(lines) {
			for _, target := range block {
				file, _, _ := strings.Cut(target, "#")
				if to := path.Join(path.Dir(name), file); to != name {
					linked[to] = true
				}
			}
		}
		return nil
	})
	var faults []string
	for _, page := range pages {
		if !linked[page] {
			faults = append(faults, page+": no page links to it")
		}
	}
	return faults, err
}

func longLines(repo fs.FS) ([]string, error) {
	return eachPage(repo, func(name string, lines []line) (faults []string) {
		for _, l := range lines {
			if n := utf8.RuneCountInString(l.text); l.kind == prose && n > width && len(wordsOf(l.text)) > 1 {
				faults = append(faults, fmt.Sprintf("%s:%d: %d characters", name, l.number, n))
			}
		}
		return faults
	})
}

// brokenFences finds code whose fence was wrapped into the prose around it.
func brokenFences(repo fs.FS) ([]string, error) {
	return eachPage(repo, func(name string, lines []line) (faults []string) {
		for _, l := range lines {
			if l.kind == prose && strings.Contains(l.text, "```") {
				faults = append(faults, fmt.Sprintf("%s:%d: a fence within prose", name, l.number))
			}
		}
		return faults
	})
}

func bareBeginnings(repo fs.FS) ([]string, error) {
	return eachPage(repo, func(name string, lines []line) []string {
		if !strings.HasPrefix(lines[0].text, "# ") {
			return []string{name + ": begins without a title"}
		}
		if i := slices.IndexFunc(lines[1:], func(l line) bool { return l.kind != blank }); i < 0 || lines[1+i].kind != prose {
			return []string{name + ": does not begin with what it is for"}
		}
		return nil
	})
}

var (
	mention  = regexp.MustCompile(`\bdocs/[a-z0-9/-]+\.md(#[a-z0-9-]+)?`)
	mentions = regexp.MustCompile(`(\.(go|ya?ml|sh|c|h|toml)|Makefile)$`)
)

func brokenMentions(repo fs.FS) ([]string, error) {
	var faults []string
	err := fs.WalkDir(repo, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (name == "bin" || name == "out" || name == ".git"):
			return fs.SkipDir
		case d.IsDir() || !mentions.MatchString(name) || name == "docs/docs_test.go":
			return nil
		}
		text, err := fs.ReadFile(repo, name)
		if err != nil {
			return fmt.Errorf("reading a file that may name a page: %w", err)
		}
		for _, m := range mention.FindAllString(string(text), -1) {
			file, fragment, _ := strings.Cut(m, "#")
			if what := missing(repo, file, fragment); what != "" {
				faults = append(faults, fmt.Sprintf("%s: no %s %s", name, what, m))
			}
		}
		return nil
	})
	return faults, err
}

// missing says what of a target is not there: "file", "heading" or, if all is, nothing.
func missing(repo fs.FS, file, fragment string) string {
	info, err := fs.Stat(repo, file)
	switch {
	case err != nil:
		return "file"
	case fragment == "" || info.IsDir() || path.Ext(file) != ".md":
		return ""
	}
	text, err := fs.ReadFile(repo, file)
	if err != nil || !anchors(parse(string(text)))[fragment] {
		return "heading"
	}
	return ""
}

// eachPage gathers the faults of all pages, in order.
func eachPage(repo fs.FS, check func(name string, lines []line) []string) ([]string, error) {
	pages, err := fs.Glob(repo, "*.md")
	if err != nil {
		return nil, err
	}
	err = fs.WalkDir(repo, "docs", func(name string, _ fs.DirEntry, err error) error {
		if path.Ext(name) == ".md" {
			pages = append(pages, name)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	var faults []string
	for _, name := range pages {
		text, err := fs.ReadFile(repo, name)
		if err != nil {
			return nil, fmt.Errorf("reading a page: %w", err)
		}
		faults = append(faults, check(name, parse(string(text)))...)
	}
	return faults, nil
}

// TestMenuPages: every page is in the menu. The site has a page that no menu names, but nobody
// finds it.
func TestMenuPages(t *testing.T) {
	site, err := os.ReadFile("site/hugo.toml")
	if err != nil {
		t.Fatal(err)
	}
	pages, err := fs.Glob(repository(), "docs/*.md")
	if err != nil || len(pages) == 0 {
		t.Fatalf("no pages: %v", err)
	}
	for _, page := range pages {
		if !strings.Contains(string(site), `"`+path.Base(page)+`"`) {
			t.Errorf("%s is in no menu of docs/site/hugo.toml", page)
		}
	}
}
