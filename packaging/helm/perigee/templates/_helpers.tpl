{{- define "perigee.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- /* Short enough for the names of pods behind it. */ -}}
{{- define "perigee.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" }}
{{- else if contains (include "perigee.name" .) .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" }}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "perigee.name" .) | trunc 52 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "perigee.selector" -}}
app.kubernetes.io/name: {{ include "perigee.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "perigee.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "perigee.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "perigee.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "perigee.fullname" .) .Values.serviceAccount.name }}
{{- else -}}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "perigee.config" -}}
{{- if kindIs "string" .Values.config -}}
{{- .Values.config }}
{{- else -}}
{{- $http := dict "http" (printf "0.0.0.0:%d" (int .Values.service.port)) -}}
{{- merge (deepCopy .Values.config) $http | toYaml }}
{{- end }}
{{- end }}
