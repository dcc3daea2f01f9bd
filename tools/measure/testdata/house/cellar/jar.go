// SPDX-License-Identifier: Apache-2.0

package cellar

// Jar is passed on.
type Jar struct {
	Name string
	Lid  *Lid
}

// Lid is a part of a jar.
type Lid struct{ Width int }

// First has a shelf as parameter.
func (j *Jar) First(s *Shelf) bool { return j.Name != "" && s.count() == 0 }

func fits(l *Lid) bool { return l.Width > 0 }
