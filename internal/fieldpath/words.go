// SPDX-License-Identifier: Apache-2.0

package fieldpath

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

var (
	// around matches the text that decoders put around their message.
	around = regexp.MustCompile(`strict decoding error: |decoding \.profiles\[\d+\]\.pluginConfig\[\d+\]: |decoding args for plugin \S+: |` +
		`error converting YAML to JSON: |error unmarshaling JSON: |while decoding JSON: `)
	// wrongType matches encoding/json's error for a value of another type.
	wrongType = regexp.MustCompile(`^json: cannot unmarshal (\S+)( \S+)? into Go (?:struct field \S+|value) of type (.+)$`)
	noField   = regexp.MustCompile(`^(?:json: )?unknown field "[^"]*"$`)
)

// NoField is the message for an unknown field.
const NoField = "there is no such field"

// noQuantity begins Kubernetes' error for a text that is not a quantity.
const noQuantity = "quantities must match the regular expression"

// typeWords maps types of fields to words.
var typeWords = map[string]string{
	"float64": "a number", "number": "a number", "int": "a whole number", "int32": "a whole number", "int64": "a whole number",
	"string": "a text", "bool": "true or false", "array": "a list", "object": "a mapping",
}

// Words returns a decoder's error about a value in one line for the author of the document.
func Words(err error, value any) string {
	if err == nil {
		return "cannot be decoded"
	}
	text := OneLine(around.ReplaceAllString(err.Error(), ""))
	if noField.MatchString(text) {
		return NoField
	}
	if strings.HasPrefix(text, noQuantity) {
		return fmt.Sprintf("%.64q: want a quantity such as 2, 0.5 or 100G%s", fmt.Sprint(value), asQuantity(value))
	}
	m := wrongType.FindStringSubmatch(text)
	if m == nil {
		return text
	}
	found := wordsOf(m[1])
	if m[2] != "" { // a number outside the type's range
		found = strings.TrimSpace(m[2])
	}
	return fmt.Sprintf("want %s, not %s", wordsOf(m[3]), found)
}

// asQuantity returns a bandwidth in the notation of a quantity.
func asQuantity(value any) string {
	text, _ := value.(string)
	kBps, err := nvtopo.ParseBandwidth(text)
	switch {
	case err != nil:
		return ""
	case kBps%1e6 == 0:
		return fmt.Sprintf(", in bytes a second: %dG", kBps/1e6)
	}
	return fmt.Sprintf(", in bytes a second: %dk", kBps)
}

func wordsOf(kind string) string {
	switch {
	case typeWords[kind] != "":
		return typeWords[kind]
	case strings.HasPrefix(kind, "[]"):
		return typeWords["array"]
	}
	return typeWords["object"]
}

// OneLine returns the words of a text in one line.
func OneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
