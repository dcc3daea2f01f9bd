// SPDX-License-Identifier: Apache-2.0

package billing

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// decode reads exactly one JSON value: no field that into does not have, none twice, and
// nothing behind the value.
func decode(data []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is more behind the JSON value")
	}
	return refuseTwice(json.NewDecoder(bytes.NewReader(data)))
}

// refuseTwice reads one value and refuses an object that has a key twice, of which
// encoding/json would take the last. That package takes keys in any case; so does this.
func refuseTwice(d *json.Decoder) error {
	token, err := d.Token()
	if err != nil {
		return err
	}
	if token != json.Delim('{') && token != json.Delim('[') {
		return nil
	}
	seen := map[string]bool{}
	for d.More() {
		if token == json.Delim('{') {
			key, err := d.Token()
			if err != nil {
				return err
			}
			name := strings.ToLower(fmt.Sprint(key))
			if seen[name] {
				return fmt.Errorf("the field %q is there twice", key)
			}
			seen[name] = true
		}
		if err := refuseTwice(d); err != nil {
			return err
		}
	}
	_, err = d.Token() // the closing brace or bracket
	return err
}

// maxName is the length of the longest name that Kubernetes has.
const maxName = 253

// checkName lets names, label values and resource names of Kubernetes pass. What passes is
// harmless in a CSV file that a spreadsheet opens: it does not begin with = + - or @.
func checkName(field, s string) error {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	switch {
	case s == "":
		return fmt.Errorf("%s: is missing", field)
	case len(s) > maxName:
		return fmt.Errorf("%s: has more than %d characters", field, maxName)
	case !strings.ContainsRune(letters, rune(s[0])), strings.Trim(s, letters+"-_./:") != "":
		return fmt.Errorf("%s: %q: want letters, digits and -_./: behind a letter or digit", field, s)
	}
	return nil
}
