// SPDX-License-Identifier: Apache-2.0

package slurm

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/nvtopo/nvtopo/pkg/nvtopo/fabric"
)

// maxLine bounds one line of the file, with those that continue it.
const maxLine = 1 << 20

// Switches is the tree of a topology.conf.
type Switches struct {
	Levels int               // of switches
	Nodes  []fabric.NodePath // in the order of the file; each path has a switch of every level, outermost first
}

// Parse reads a topology.conf of switches.
//
// A switch is of the level that Slurm gives it: one more than the highest of those below it.
// Where a leaf switch hangs on one that is more than one level higher, it stands for the
// levels between, too: nothing else is in them. So does the top of a tree that is lower than
// others.
func Parse(r io.Reader) (*Switches, error) {
	p := parser{byName: map[string]*node{}}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxLine)
	var text string
	for number := 1; lines.Scan(); number++ {
		line, _, _ := strings.Cut(lines.Text(), "#")
		line, continued := strings.CutSuffix(strings.TrimRight(line, " \t\r"), `\`)
		text += line
		if continued {
			if text += " "; len(text) > maxLine {
				return nil, fmt.Errorf("line %d: longer than %d bytes with those that it continues", number, maxLine)
			}
			continue
		}
		if err := p.line(text, number); err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		text = ""
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if strings.TrimSpace(text) != "" {
		return nil, errors.New("the last line is to be continued")
	}
	return p.tree()
}

// node is one switch.
type node struct {
	name            string
	line            int
	switches, hosts []string
	parent          *node
	height          int // 0 for a leaf switch
}

type parser struct {
	all    []*node // in the order of the file
	byName map[string]*node
}

// line reads one line without comment.
func (p *parser) line(text string, number int) error {
	s := &node{line: number}
	for field := range strings.FieldsSeq(text) {
		key, value, ok := strings.Cut(field, "=")
		if !ok {
			return fmt.Errorf("%q: want KEY=VALUE", field)
		}
		var err error
		switch strings.ToLower(key) {
		case "switchname":
			s.name = value
		case "switches":
			s.switches, err = Hosts(value)
		case "nodes":
			s.hosts, err = Hosts(value)
		case "linkspeed": // Slurm does not use it either
		case "blockname", "blocksizes":
			return fmt.Errorf("%s: blocks are not read, only trees of switches", key)
		default:
			return fmt.Errorf("unknown key %q", key)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
	}
	switch {
	case s.name == "" && s.switches == nil && s.hosts == nil:
		return nil
	case s.name == "":
		return errors.New("a switch without SwitchName")
	case (s.switches == nil) == (s.hosts == nil):
		return fmt.Errorf("switch %q: want either Switches or Nodes", s.name)
	case p.byName[s.name] != nil:
		return fmt.Errorf("switch %q is on line %d, too", s.name, p.byName[s.name].line)
	}
	p.all, p.byName[s.name] = append(p.all, s), s
	return nil
}

func (p *parser) tree() (*Switches, error) {
	if len(p.all) == 0 {
		return nil, errors.New("no switches")
	}
	if err := p.connect(); err != nil {
		return nil, err
	}
	for _, s := range p.all {
		if err := s.measure(); err != nil {
			return nil, err
		}
	}
	out := &Switches{}
	for _, s := range p.all {
		out.Levels = max(out.Levels, s.height+1)
	}
	behind := map[string]*node{}
	for _, s := range p.all {
		path := s.path(out.Levels)
		for _, host := range s.hosts {
			if other := behind[host]; other != nil {
				return nil, fmt.Errorf("line %d: node %q is behind switch %q, and on line %d behind %q: that is no tree", s.line, host, s.name, other.line, other.name)
			}
			behind[host] = s
			if len(out.Nodes) == fabric.MaxNodes {
				return nil, fmt.Errorf("line %d: more than %d nodes", s.line, fabric.MaxNodes)
			}
			out.Nodes = append(out.Nodes, fabric.NodePath{Node: host, Path: path})
		}
	}
	return out, nil
}

// connect gives each switch its parent.
func (p *parser) connect() error {
	for _, s := range p.all {
		for _, name := range s.switches {
			child := p.byName[name]
			switch {
			case child == nil:
				return fmt.Errorf("line %d: switch %q: there is no switch %q", s.line, s.name, name)
			case child.parent != nil:
				return fmt.Errorf("line %d: switch %q is below %q, and on line %d below %q: that is no tree",
					s.line, name, s.name, child.parent.line, child.parent.name)
			}
			child.parent = s
		}
	}
	return nil
}

// measure lifts all switches above this one to at least the height that it demands.
func (s *node) measure() error {
	above := 0
	for at := s.parent; at != nil; at = at.parent {
		if above++; above >= fabric.MaxLevels {
			return s.tooHigh()
		}
	}
	for at := s; at.parent != nil && at.parent.height <= at.height; at = at.parent {
		at.parent.height = at.height + 1
	}
	return nil
}

// tooHigh says whether there are too many switches above this one, or the same ones again.
func (s *node) tooHigh() error {
	seen := map[*node]bool{}
	for at := s; at != nil; at = at.parent {
		if seen[at] {
			return fmt.Errorf("line %d: switch %q is below itself: that is no tree", at.line, at.name)
		}
		seen[at] = true
	}
	return fmt.Errorf("line %d: switch %q is below %d others, at most %d levels of switches are supported", s.line, s.name, len(seen)-1, fabric.MaxLevels)
}

// path names the switch of each level that a leaf switch is behind, outermost first.
func (s *node) path(levels int) []string {
	var up []string
	for at := s; at != nil; at = at.parent {
		top := levels
		if at.parent != nil {
			top = at.parent.height
		}
		for len(up) < top {
			up = append(up, at.name)
		}
	}
	slices.Reverse(up)
	return up
}
