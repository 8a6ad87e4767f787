// Jenkinsfile: for an agent with Python 3.11 and Docker, or any engine that `belljar doctor` accepts there.
// Each agent builds the image once. If yours are new each time, keep a file for them that `belljar images export base FILE`
// writes, and begin with `belljar images import FILE --name base`.
pipeline {
  agent { label 'docker' }
  options { timeout(time: 30, unit: 'MINUTES') }
  stages {
    stage('agent') {
      steps {
        sh 'python3 -m venv .belljar && .belljar/bin/pip install --quiet belljar-sandbox'
        sh '.belljar/bin/belljar run --policy ci --timeout 600 --report belljar.json --report-junit belljar.xml --artifacts artifacts ./agent-task.sh'
      }
    }
  }
  post {
    always {
      junit 'belljar.xml'
      archiveArtifacts artifacts: 'belljar.json, artifacts/**', allowEmptyArchive: true
    }
  }
}
