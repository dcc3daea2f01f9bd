// SPDX-License-Identifier: Apache-2.0

package fieldpath

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"strings"
)

// Error reports the fields of a document that cannot be decoded. It wraps the decoder's own error.
type Error struct {
	Problems []Problem
	err      error
}

func (e *Error) Error() string {
	texts := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		texts[i] = p.String()
	}
	return strings.Join(texts, "; ")
}

func (e *Error) Unwrap() error { return e.err }

// Decode decodes a JSON object strictly: unknown fields are errors, because they are spelling mistakes.
// An error about fields is an *Error; others are encoding/json's.
func Decode(data []byte, into any) error {
	err := strictly(data, into)
	if err == nil {
		return nil
	}
	return Explain(data, err, func(part []byte) error {
		return strictly(part, reflect.New(reflect.TypeOf(into).Elem()).Interface())
	})
}

// Explain returns err, with which a decoder rejected a JSON document, together with the fields that
// caused it.
func Explain(data []byte, err error, decode func([]byte) error) error {
	document := map[string]any{}
	if json.Unmarshal(data, &document) != nil {
		return err
	}
	problems := Find(document, func(part map[string]any) error {
		text, err := json.Marshal(part)
		if err != nil {
			return err
		}
		return decode(text)
	})
	if len(problems) == 0 {
		return err
	}
	return &Error{problems, err}
}

func strictly(data []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("want one document, and there is text behind it")
	}
	return nil
}
