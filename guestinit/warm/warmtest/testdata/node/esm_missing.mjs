import './not_there.mjs';
