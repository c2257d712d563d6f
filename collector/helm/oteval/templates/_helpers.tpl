{{- define "oteval.name" -}}
{{- if contains "oteval" .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-oteval" (.Release.Name | trunc 45 | trimSuffix "-") -}}
{{- end -}}
{{- end -}}

{{- define "oteval.selector" -}}
app.kubernetes.io/name: oteval
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "oteval.labels" -}}
{{ include "oteval.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}
