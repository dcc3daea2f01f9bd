// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
)

// Room is a folder of the first or second level, with the folders below it: bench/scheduler,
// pkg/scheduler/nodestate, ui.
type Room struct {
	Name     string
	Lines    int // written by hand, without tests
	Tests    int // lines of _test.go files and below testdata
	Packages int
}

// generated is the line that marks a generated file (go help generate).
var generated = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)

// read counts the figures that need no types: modules, the lines of rooms, and words.
func (f *Figures) read(repository fs.FS, names []string) error {
	rooms := map[string]*Room{}
	folders := map[string]bool{}
	for _, name := range names {
		f.Modules += number(path.Base(name) == "go.mod")
		page := isPage(name)
		if path.Ext(name) != ".go" && !page {
			continue
		}
		text, err := fs.ReadFile(repository, name)
		if errors.Is(err, fs.ErrNotExist) {
			continue // deleted without git rm
		} else if err != nil {
			return fmt.Errorf("read a file: %w", err)
		}
		if page {
			f.Docs.add(prose(string(text)))
			continue
		}
		if generated.Match(text) {
			continue
		}
		room := rooms[roomOf(name)]
		if room == nil {
			room = &Room{Name: roomOf(name)}
			rooms[room.Name] = room
		}
		lines := bytes.Count(text, []byte("\n"))
		if strings.HasSuffix(name, "_test.go") || strings.Contains("/"+name, "/testdata/") {
			room.Tests += lines
			continue
		}
		room.Lines += lines
		room.Packages += number(!folders[path.Dir(name)])
		folders[path.Dir(name)] = true
		f.Comments.add(comments(text))
	}
	for _, room := range rooms {
		f.Packages += room.Packages
		f.Rooms = append(f.Rooms, *room)
	}
	slices.SortFunc(f.Rooms, func(a, b Room) int { return cmp.Compare(a.Name, b.Name) })
	return nil
}

func roomOf(name string) string {
	parts := strings.Split(path.Dir(name), "/")
	return strings.Join(parts[:min(2, len(parts))], "/")
}
