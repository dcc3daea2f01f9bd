{{- define "gvList" -}}
# {{ markdownTemplateValue "title" }}

{{ template "prose" (print (markdownTemplateValue "for") " Generated from the Go types by `make generate`.") }}
{{ range $gv := . }}
## {{ markdownTemplateValue "apiVersion" }}
{{ range $gv.SortedTypes }}{{ template "type" . }}{{ end -}}
{{ end }}
{{- end -}}

{{- define "prose" -}}
{{ . | replace "\n" " " | wrap 98 }}
{{- end -}}

{{- /* One cell of a table: one line, and no sign that ends it. */ -}}
{{- define "cell" -}}
{{ . | replace "\n" " " | replace "|" "\\|" | replace "<" "&lt;" | trim }}
{{- end -}}

{{- define "type" -}}
{{- if markdownShouldRenderType . }}
### {{ .Name }}
{{ if .Doc }}
{{ template "prose" .Doc }}
{{ end -}}
{{ if .Validation }}
{{ range .Validation }}* {{ . }}
{{ end -}}
{{ end -}}
{{ if .Members }}
| field | type | meaning | default | restrictions |
|---|---|---|---|---|
{{ if .GVK -}}
| `apiVersion`, `kind` | | `{{ markdownTemplateValue "apiVersion" }}`, `{{ .GVK.Kind }}` | | |
{{ end -}}
{{ range .Members -}}
| `{{ .Name }}` | {{ markdownRenderType .Type }} | {{ if eq .Name "metadata" }}as of every object{{ else }}{{ template "cell" .Doc }}{{ end }} | {{ with .Default }}`{{ . }}`{{ end }} | {{ range $i, $v := .Validation }}{{ if $i }}; {{ end }}{{ template "cell" (replace "Optional: {}" "optional" $v) }}{{ end }} |
{{ end -}}
{{ end -}}
{{ if .EnumValues }}
| value | meaning |
|---|---|
{{ range .EnumValues -}}
| `{{ .Name }}` | {{ template "cell" .Doc }} |
{{ end -}}
{{ end -}}
{{ end -}}
{{- end -}}
